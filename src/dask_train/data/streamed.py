"""A data set that is larger than memory, as one reader has it: groups of partitions that come and go in an epoch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dask_train.data.columns import Columns
from dask_train.data.plan import EpochPlan
from dask_train.data.rows import Rows
from dask_train.data.sparse_rows import set_read_only
from dask_train.data.table import Table


class StreamedRows:
    """The rows of one epoch, with the same methods as :class:`~dask_train.data.rows.Rows`.

    Parameters
    ----------
    table, plan
        The data set, and the epoch's order, whose groups are gone through in order.
    rank
        Whose rows: its host's partitions are mapped, others are fetched row by row.
    open_group
        Maps a group; called with its number and the first group that is still needed; may wait.

    Attributes
    ----------
    schema
        The columns, once a group is open.
    """

    schema: Columns

    def __init__(self, table: Table, plan: EpochPlan, rank: int, open_group: Callable[[int, int], Rows]) -> None:
        self._group_of_partition = plan.group_of_partition
        self._lengths = table.lengths
        self._open_group = open_group
        self._open: dict[int, Rows] = {}
        self._filled = np.unique(self._group_of_partition[table.lengths > 0])
        self._is_mine = table.owner == table.host_of_rank[rank]
        self.all_here = bool(self._is_mine.all())

    def turn_to(self, first: int, last: int) -> None:
        """Open the groups from the first to the last that have rows, and release those before.

        A rank opens all groups of a global batch, also those in which it has no rows. Others wait with a group until
        this rank is near: if it left one out, and then waited for the others in an all-reduce, none would ever go on.
        """
        groups = self._filled[(first <= self._filled) & (self._filled <= last)].tolist()
        for number in [number for number in self._open if number < groups[0]]:
            del self._open[number]
        for number in groups:
            if number not in self._open:
                self._open[number] = self._open_group(number, groups[0])
                self.schema = self._open[number].schema

    def is_here(self, partition: np.ndarray) -> np.ndarray:
        """Return of each partition, bool ``(n,)``, whether it can be read here."""
        is_here: np.ndarray = self._is_mine[partition]
        return is_here

    def some_partition(self) -> np.ndarray:
        """Return one that has rows, of the last group that was opened.

        One that can be read here, if there is such a one.
        """
        in_group = (self._group_of_partition == max(self._open)) & (self._lengths > 0)
        filled = np.flatnonzero(in_group)
        here = filled[self._is_mine[filled]]
        return (here if len(here) else filled)[:1]

    def partition(self, number: int) -> tuple[Any, ...]:
        """Return all rows of a partition of an open group.

        Copied, since their memory is others' with the next group.
        """
        columns = tuple(column.copy() for column in self._open[int(self._group_of_partition[number])].partition(number))
        for column in columns:
            set_read_only(column)
        return columns

    def take(self, partition: np.ndarray, row: np.ndarray, out: Sequence[np.ndarray]) -> None:
        """Copy rows, as :meth:`Rows.take <dask_train.data.rows.Rows.take>`; once more where a batch has two groups."""
        group = self._group_of_partition[partition]
        present = np.unique(group).tolist()
        if len(present) == 1:
            self._open[present[0]].take(partition, row, out)
            return
        for number in present:
            chosen = group == number
            part = [np.empty_like(target, shape=(int(chosen.sum()), *target.shape[1:])) for target in out]
            self._open[number].take(partition[chosen], row[chosen], part)
            for target, rows in zip(out, part, strict=True):
                target[chosen] = rows
