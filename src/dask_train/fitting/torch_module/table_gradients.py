"""Sums sparse gradients of embedding tables over all workers, by exchanging rows and indices, not tables."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch

from dask_train.collectives import ProcessGroup
from dask_train.fitting.torch_module.values import summed_in

# In the place of a number of rows: this worker has no gradient of the table.
_NONE = -1


def looks_up(part: torch.nn.Module) -> bool:
    """Return whether a layer looks up rows of a table."""
    return isinstance(part, torch.nn.Embedding | torch.nn.EmbeddingBag)


def table_names(module: torch.nn.Module) -> list[str]:
    """Return the names of the parameters whose gradients are sparse: trained tables of layers with ``sparse=True``."""
    tables = {
        id(weight)
        for part in module.modules()
        if looks_up(part) and part.sparse
        for name, weight in part.named_parameters(recurse=False)
        if name == "weight" and weight.requires_grad
    }
    return [name for name, one in module.named_parameters() if id(one) in tables]


class _Rows(NamedTuple):
    """One worker's gradient of a table: ``(n,)`` distinct indices, and ``(n, *row_shape)`` values."""

    indices: np.ndarray
    values: np.ndarray


class TableSums:
    """Sums gradients of tables over all workers.

    Parameters
    ----------
    tables
        Parameters by name, in the same order on all workers.
    group
        Process group of all workers.

    Notes
    -----
    Each worker sends the gradients of the rows that it has looked up, added up by index, of all tables in one gather.
    All workers add them up in the order of ranks, so the sums have the same bits everywhere.
    """

    def __init__(self, tables: Mapping[str, torch.nn.Parameter], group: ProcessGroup) -> None:
        self._by_name, self._group = dict(tables), group
        self._dtypes = [torch.empty(0, dtype=summed_in(table.dtype)).numpy().dtype for table in self._by_name.values()]

    @torch.no_grad()
    def sum(self) -> None:
        """Set ``grad`` of each table to the sum of all workers'; None if no worker has one.

        Raises
        ------
        ValueError
            A gradient is dense.
        """
        if not self._by_name:
            return
        own = [self._rows_of(name) for name in self._by_name]
        (sent,) = self._group.gather("rows of tables", [self._packed(own)])
        for table, several in zip(self._by_name.values(), self._unpacked(sent), strict=True):
            table.grad = _tensor_of(_added_up(several), table) if several else None

    def _rows_of(self, name: str) -> _Rows | None:
        table = self._by_name[name]
        if (gradient := table.grad) is None:
            return None
        if not gradient.is_sparse:
            raise ValueError(
                f"The gradient of {name!r} is dense, though its layer has sparse=True: the module uses this table in "
                "another way, too. Leave sparse=True out, or pass workers=1."
            )
        coalesced = gradient.coalesce()
        values = coalesced.values().to("cpu", summed_in(table.dtype))
        return _Rows(coalesced.indices()[0].cpu().numpy(), values.resolve_conj().numpy())

    def _packed(self, own: Sequence[_Rows | None]) -> np.ndarray:
        """Return the numbers of rows, then the rows of each table, as bytes."""
        counts = np.array([_NONE if rows is None else len(rows.indices) for rows in own], np.int64)
        arrays = [counts, *itertools.chain.from_iterable(rows for rows in own if rows is not None)]
        return np.concatenate([np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in arrays])

    def _unpacked(self, sent: np.ndarray) -> list[list[_Rows]]:
        """Return, for each table, the rows of those workers that have a gradient of it, in their order."""
        by_table: list[list[_Rows]] = [[] for _ in self._by_name]
        at = 0

        def taken(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
            nonlocal at
            array = np.empty(shape, dtype)  # aligned, as bytes between others may not be
            array.reshape(-1).view(np.uint8)[:] = sent[at : at + array.nbytes]
            at += array.nbytes
            return array

        for _ in range(self._group.size):
            counts = taken((len(by_table),), np.dtype(np.int64))
            for table, dtype, count, rows in zip(self._by_name.values(), self._dtypes, counts, by_table, strict=True):
                if count != _NONE:
                    rows.append(_Rows(taken((count,), counts.dtype), taken((count, *table.shape[1:]), dtype)))
        return by_table


def _added_up(several: Sequence[_Rows]) -> _Rows:
    """Return each index once, with the sum of its values in the order of the workers."""
    indices = np.unique(np.concatenate([rows.indices for rows in several]))
    values = np.zeros((len(indices), *several[0].values.shape[1:]), several[0].values.dtype)
    for rows in several:
        values[np.searchsorted(indices, rows.indices)] += rows.values  # whose indices are distinct
    return _Rows(indices, values)


def _tensor_of(rows: _Rows, table: torch.nn.Parameter) -> torch.Tensor:
    indices, values = torch.from_numpy(rows.indices)[None], torch.from_numpy(rows.values)
    return torch.sparse_coo_tensor(
        indices, values.to(table.dtype), table.shape, device=table.device, is_coalesced=True, check_invariants=False
    )
