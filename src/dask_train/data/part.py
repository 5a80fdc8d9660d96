"""A part of a data set that is open: some columns, and rows that are numbered from 0."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dask_train.data.rows import Rows
from dask_train.data.selection import Field, Selection


@dataclass(frozen=True, kw_only=True)
class Stretches:
    """Rows that follow each other, by partition.

    Attributes
    ----------
    partition, start, length
        int64 ``(n,)``: which partition, its first row that belongs to it, and how many do; none without rows.
    """

    partition: np.ndarray = field(repr=False)
    start: np.ndarray = field(repr=False)
    length: np.ndarray = field(repr=False)


def shard_of(lengths: np.ndarray, shard: tuple[int, int] | None) -> Stretches:
    """One of n parts of all rows: the rows of all partitions numbered through, cut where parts differ by at most one.

    Parameters
    ----------
    lengths
        int64: rows of each partition.
    shard
        The part's number and how many there are; None for all rows.

    Raises
    ------
    ValueError
        It is no such pair.
    """
    number, parts = _checked(shard)
    ends = np.cumsum(lengths)
    num_rows = int(ends[-1]) if len(ends) else 0
    first, last = number * num_rows // parts, (number + 1) * num_rows // parts
    starts = ends - lengths
    low, high = np.maximum(starts, first), np.minimum(ends, last)
    (partition,) = np.nonzero(high > low)
    return Stretches(
        partition=partition,
        start=(low - starts)[partition],
        length=(high - low)[partition],
    )


def _checked(shard: tuple[int, int] | None) -> tuple[int, int]:
    if shard is None:
        return 0, 1
    try:
        number, parts = map(operator.index, shard)
    except (TypeError, ValueError):
        raise ValueError(f"shard is {shard!r}; pass (i, n) for part i of n, from (0, n) to (n - 1, n).") from None
    if not 0 <= number < parts:
        raise ValueError(f"shard is {shard!r}: of {parts} parts there are those from 0 to {parts - 1}.")
    return number, parts


class Part:
    """Some rows of a data set, as they are asked for.

    Parameters
    ----------
    rows
        The data set, with at least the partitions of the stretches.
    selection
        Which columns, and how they are given.
    stretches
        Which rows.

    Attributes
    ----------
    columns
        ``(n, *row_shape)`` of each column of the data set, mapped as it is stored: see
        :class:`~dask_train.data.rows.Rows`.
    kinds
        What they are.
    bounds
        int64 ``(num_stretches + 1,)``: the number, here, of each stretch's first row; the number of rows at last.
    shifts
        int64 ``(num_stretches,)`` for each column: what is added to a row's number here to get its number there.
    """

    def __init__(self, rows: Rows, selection: Selection, stretches: Stretches) -> None:
        self.selection, self.columns, self.kinds = selection, rows.columns, rows.schema.columns
        self.bounds = np.concatenate([[0], np.cumsum(stretches.length)]).astype(np.int64)
        firsts = rows.numbers(stretches.partition, stretches.start)
        self.shifts = [np.asarray(first - self.bounds[:-1], np.int64) for first in firsts]
        self._rows = rows  # what is copied from other hosts lives with it

    def __len__(self) -> int:
        return int(self.bounds[-1])

    @property
    def row_bytes(self) -> int:
        """Bytes of one row of what is asked for."""
        return sum(self.kinds[column].dense.row_bytes for wanted in self.selection.fields for column in wanted.columns)

    def take(self, numbers: np.ndarray) -> list[np.ndarray]:
        """Return rows by their numbers here, from 0; for each field a new array, ``(len(numbers), ...)``: one copy."""
        stretch = np.searchsorted(self.bounds, numbers, "right") - 1
        return [self._taken(each, numbers, stretch) for each in self.selection.fields]

    def _taken(self, wanted: Field, numbers: np.ndarray, stretch: np.ndarray) -> np.ndarray:
        out = self._empty(wanted, len(numbers))
        for column, target in zip(wanted.columns, self._targets(wanted, out), strict=True):
            self._rows.rows_of(column, numbers + self.shifts[column][stretch], target)
        return out

    def all(self) -> list[np.ndarray]:
        """Return all rows, in order; for each field a new array, ``(num_rows, ...)``: one copy."""
        arrays = []
        for wanted in self.selection.fields:
            out = self._empty(wanted, len(self))
            for column, target in zip(wanted.columns, self._targets(wanted, out), strict=True):
                self._copy(column, target)
            arrays.append(out)
        return arrays

    def column(self, number: int) -> np.ndarray:
        """Return one column of all rows, in order, ``(num_rows, *row_shape)``: one copy."""
        out = self.kinds[number].dense.empty(len(self))
        self._copy(number, out)
        return out

    def _copy(self, column: int, target: np.ndarray) -> None:
        for number, shift in enumerate(self.shifts[column]):
            start, stop = self.bounds[number], self.bounds[number + 1]
            if self.kinds[column].layout is not None:
                self._rows.rows_of(column, np.arange(start + shift, stop + shift), target[start:stop])
            else:
                target[start:stop] = self.columns[column][start + shift : stop + shift]

    def _empty(self, wanted: Field, num_rows: int) -> np.ndarray:
        shape = (len(wanted.columns),) if wanted.is_matrix else self.kinds[wanted.columns[0]].row_shape
        return np.empty((num_rows, *shape), wanted.dtype)

    def _targets(self, wanted: Field, out: np.ndarray) -> Sequence[np.ndarray]:
        return [out[:, number] for number in range(len(wanted.columns))] if wanted.is_matrix else [out]

    def shaped(self, values: Sequence[Any]) -> Any:
        """Return one value a field, put together as it was asked for."""
        return self.selection.shaped(values)
