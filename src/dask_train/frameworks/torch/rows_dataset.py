"""Rows in shared memory as a map-style torch ``Dataset``: batches are gathered at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import torch
from torch.utils.data import Dataset

from dask_train.compat.torch import collate, register_collate
from dask_train.errors import DataError

if TYPE_CHECKING:
    from dask_train.frameworks.base import NumberedRows


class RowsDataset(Dataset[Any]):
    """See :meth:`dask_train.PublishedDataset.to_torch`.

    Rows and batches are tensors of their own memory, copied once from the shared memory. Worker processes of a
    ``DataLoader`` that are forked share the mapping; none is needed for speed, since no Python runs for single rows.

    Parameters
    ----------
    rows
        Such as a :class:`dask_train.data.part.Part`.

    Raises
    ------
    DataError
        torch has no such dtype.
    """

    def __init__(self, rows: NumberedRows) -> None:
        self._rows = rows
        self._batch(np.empty(0, np.int64))  # sees that there are such tensors

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, wanted: Any) -> Any:
        """Return a row by its number, or a batch by a slice, a list, an array or a tensor of numbers or booleans.

        Raises
        ------
        IndexError
            There is no such row.
        """
        if isinstance(wanted, slice):
            return self._rows.shaped(self._batch(np.arange(*wanted.indices(len(self)))))
        numbers = np.asarray(wanted)
        if numbers.ndim == 0:
            return self._rows.shaped([tensor[0] for tensor in self._batch(self._checked(numbers[None]))])
        return self._rows.shaped(self._batch(self._checked(numbers)))

    def __getitems__(self, wanted: list[int]) -> Sequence[Any]:
        """Return the rows of a batch: a sequence for a custom ``collate_fn``; torch's takes all at once."""
        return _Gathered(self._rows.shaped, self._batch(self._checked(np.asarray(wanted))))

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "A Dataset over shared memory is mapped into this process and can't travel. Use num_workers=0, or worker "
            "processes that are forked: DataLoader(..., multiprocessing_context='fork')."
        )

    def _checked(self, numbers: np.ndarray) -> np.ndarray:
        if numbers.dtype == bool:
            if numbers.shape != (len(self),):
                raise IndexError(f"A mask of shape {numbers.shape} does not fit a data set of {len(self)} rows.")
            return np.flatnonzero(numbers)
        if numbers.size == 0:
            return np.empty(0, np.int64)
        if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
            raise IndexError(f"Rows go by whole numbers, one after the other; this is {numbers.dtype} {numbers.shape}.")
        if numbers.min() < -len(self) or numbers.max() >= len(self):
            raise IndexError(f"Row {numbers.max()} or {numbers.min()} is none of {len(self)} rows.")
        return np.where(numbers < 0, numbers + len(self), numbers)

    def _batch(self, numbers: np.ndarray) -> list[torch.Tensor]:
        arrays = self._rows.take(numbers)
        try:
            return [torch.from_numpy(array.astype(array.dtype.newbyteorder("="), copy=False)) for array in arrays]
        except TypeError as error:
            raise DataError(
                f"Columns of {', '.join(str(array.dtype) for array in arrays)} can't all become torch tensors: {error}",
                change="Choose others with features= and label=; turn text and dates into numbers before publishing.",
            ) from error


class _Gathered(Sequence[Any]):
    """The rows of a batch that has been gathered."""

    def __init__(self, shaped: Any, tensors: list[torch.Tensor]) -> None:
        self._shaped, self._tensors = shaped, tensors

    def batch(self) -> Any:
        """Return all of them, as ``default_collate`` would make it."""
        return _listed(self._shaped(self._tensors))

    def __len__(self) -> int:
        return len(self._tensors[0])

    def __getitem__(self, number: Any) -> Any:
        return _marked(self._shaped([tensor[number] for tensor in self._tensors]))

    def __iter__(self) -> Iterator[Any]:
        return map(self.__getitem__, range(len(self)))


# torch's collate looks at the first row, and asks its type how a batch is made.


class _TupleRow(tuple):  # type: ignore[type-arg]
    """A row of a tuple."""

    __slots__ = ()


class _DictRow(dict):  # type: ignore[type-arg]
    """A row of a dict."""


class _TensorRow(torch.Tensor):
    """A row of an array."""

    # What is made of it is a plain tensor, as of a parameter.
    __torch_function__ = torch.nn.Parameter.__torch_function__


def _marked(row: Any) -> Any:
    if isinstance(row, torch.Tensor):
        return row.as_subclass(_TensorRow)
    return _DictRow(row) if isinstance(row, dict) else _TupleRow(row)


def _listed(batch: Any) -> Any:
    """As torch's own: tuples become lists."""
    if isinstance(batch, tuple):
        return [_listed(each) for each in batch]
    return batch


def _collate(rows: Any, *, collate_fn_map: Any = None) -> Any:
    if isinstance(rows, _Gathered):
        return rows.batch()
    plain = {kind: function for kind, function in (collate_fn_map or {}).items() if function is not _collate}
    return collate([_plain(row) for row in rows], plain)


def _plain(row: Any) -> Any:
    if isinstance(row, torch.Tensor):
        return row.as_subclass(torch.Tensor)
    return dict(row) if isinstance(row, dict) else tuple(row)


for _kind in (_TupleRow, _DictRow, _TensorRow):
    register_collate(_kind, _collate)
