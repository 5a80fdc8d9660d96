"""Outputs and targets of a whole global batch, gathered from the shares of all workers on every worker."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from dask_train.collectives import ProcessGroup
from dask_train.compat.torch import flatten, unflatten
from dask_train.fitting.torch_module.values import as_array, as_tensor


class Whole(NamedTuple):
    """Tensors of the rows of all workers.

    Attributes
    ----------
    tensors
        ``(rows of all workers, *row_shape)`` each, without gradients.
    own
        Slice of the rows of this worker.
    """

    tensors: list[torch.Tensor]
    own: slice


class GlobalBatch:
    """Concatenates tensors of all workers, in the order of their ranks.

    A worker's share of a global batch is any subset of its rows, so the rows come in another order than in one process.
    """

    def __init__(self, group: ProcessGroup | None) -> None:
        self._group = group

    def of(self, tensors: Sequence[torch.Tensor], rows: int) -> Whole:
        """Return the tensors of all workers in one gather, given this worker's and their number of rows.

        Raises
        ------
        ValueError
            Workers have tensors of different dtypes or row shapes.
        """
        if self._group is None:
            return Whole([tensor.detach() for tensor in tensors], slice(0, rows))
        everyones, _ = self._gather_counts([tensors], [rows], None)
        first = int(everyones[: self._group.rank].sum())
        local_arrays = [np.ascontiguousarray(as_array(tensor)) for tensor in tensors]
        arrays = self._group.gather("rows", local_arrays)
        global_tensors = [
            as_tensor(array, tensor.dtype).to(tensor.device) for array, tensor in zip(arrays, tensors, strict=True)
        ]
        return Whole(global_tensors, slice(first, first + rows))

    def sums(self, tensors: Sequence[torch.Tensor], rows: int, own: Sequence[float]) -> tuple[int, list[float]]:
        """Return the number of rows of all workers, and the sums of ``own`` over all workers.

        Raises
        ------
        ValueError
            As of :meth:`of`.
        """
        return self.sums_of_shares([tensors], [rows], [own])

    def sums_of_shares(
        self, tensors: Sequence[Sequence[torch.Tensor]], rows: Sequence[int], own: Sequence[Sequence[float]]
    ) -> tuple[int, list[float]]:
        """Return as :meth:`sums` does, for a worker with several shares: tensors, rows and numbers per share."""
        everyones, numbers = self._gather_counts(tensors, rows, own)
        return int(everyones.sum()), numbers.sum(0).tolist()

    def _gather_counts(
        self,
        tensors: Sequence[Sequence[torch.Tensor]],
        rows: Sequence[int],
        own: Sequence[Sequence[float]] | None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Check that all shares agree in dtype and row shape; return row counts ``(n,)`` and numbers ``(n, 2)``.

        ``n`` is the number of shares of all workers. The numbers are zeros where ``own`` is None.
        """
        assert self._group is not None
        kinds = list(map(_kinds_of, tensors))
        digests = [zlib.crc32(repr((each, own is None)).encode()) for each in kinds]
        rows_and_digests = np.array(list(zip(rows, digests, strict=True)), np.int64)
        numbers = np.array(own or [(0.0, 0.0)] * len(rows))
        everyones, everyones_numbers = self._group.gather("rows and kinds", [rows_and_digests, numbers])
        if (everyones[:, 1] != everyones[0, 1]).any():
            raise ValueError(
                f"Outputs and targets of this worker's rows are {_listed(kinds[0])}, and those of another worker's are "
                "others. Make the same of any rows, or pass workers=1."
            )
        return everyones[:, 0], everyones_numbers


class SharesBatch(GlobalBatch):
    """A :class:`GlobalBatch` of workers with several shares, with the same bits for any number of workers."""

    def joined(self, structures: Sequence[Structure]) -> Structure:
        """Concatenate the outputs of several shares, without gradients.

        Raises
        ------
        ValueError
            The shares differ in dtype or row shape.
        """
        first, *others = ([one.detach() for one in each.tensors] for each in structures)
        for other in others:
            if _kinds_of(other) != _kinds_of(first):
                raise ValueError(
                    f"The module makes {_listed(_kinds_of(first))} of one share of a batch, and "
                    f"{_listed(_kinds_of(other))} of another. Make the same of any rows, or leave virtual_workers= out."
                )
        return Structure(
            structures[0].filled([torch.cat(several) for several in zip(first, *others, strict=True)]), None
        )

    def of(self, tensors: Sequence[torch.Tensor], rows: int) -> Whole:
        """Return as :class:`GlobalBatch` does, in memory of torch: its alignment may change the bits of products."""
        whole = super().of(tensors, rows)
        return Whole([tensor.clone() for tensor in whole.tensors], whole.own)


class Structure:
    """The outputs of a module as a flat list of tensors, and the structure to put them together again.

    Parameters
    ----------
    outputs
        A tensor, or a pytree (tuples, lists, dicts) of tensors.
    rows
        Number of rows of the inputs, which each tensor must have. None: neither rows nor types are checked.

    Attributes
    ----------
    tensors
        The tensors, in the order of the pytree.

    Raises
    ------
    ValueError
        The outputs have other leaves than tensors and None, or a tensor without one row per row of the inputs.
    """

    def __init__(self, outputs: Any, rows: int | None) -> None:
        flat, self._spec = flatten(outputs)
        self._others = {place: one for place, one in enumerate(flat) if not isinstance(one, torch.Tensor)}
        if rows is not None and any(one is not None for one in self._others.values()):
            kinds = sorted({type(one).__name__ for one in self._others.values() if one is not None})
            raise ValueError(
                f"The module makes {', '.join(kinds)} besides tensors, which several workers can't put together. Make "
                "tensors with a row for each row, or pass workers=1."
            )
        self.tensors = [one for one in flat if isinstance(one, torch.Tensor)]
        for tensor in self.tensors if rows is not None else ():
            if tensor.ndim == 0 or len(tensor) != rows:
                raise ValueError(
                    f"The module makes a tensor of shape {tuple(tensor.shape)} of {rows} rows. Several workers put "
                    "together what has one row for each row that goes in, along the first axis: make that (also of "
                    "losses: a value a row), or pass workers=1."
                )

    def filled(self, tensors: Sequence[torch.Tensor]) -> Any:
        """Return outputs with the same structure, made of other tensors."""
        left = iter(tensors)
        flat = [
            self._others[place] if place in self._others else next(left)
            for place in range(len(self._others) + len(tensors))
        ]
        return unflatten(flat, self._spec)


def _kinds_of(tensors: Sequence[torch.Tensor]) -> list[tuple[str, tuple[int, ...]]]:
    return [(str(tensor.dtype), tuple(tensor.shape[1:])) for tensor in tensors]


def _listed(kinds: Sequence[tuple[str, tuple[int, ...]]]) -> str:
    return ", ".join(f"{dtype.removeprefix('torch.')} {shape}" for dtype, shape in kinds)
