"""All rows of a data set by their numbers, on every rank: what samplers of other tools share out among ranks."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from dask_train.data.batches import Reader
from dask_train.data.rows import Rows
from dask_train.data.table import Table
from dask_train.errors import DataError

# In a data set of fewer rows, ranks that share them out well may each have seen all of them soon.
FEW_ROWS = 64


class RowsByNumber:
    """Rows numbered from 0 over all partitions, in the order of the collection; no rank has a share of its own.

    Parameters
    ----------
    table, rows
        The data set, and what of it is mapped here.
    reader
        Brings rows from where they are.
    shaped
        Puts the columns of rows together as the data was given.
    seen_all
        Called once if this process, in the first as many rows as there are, has been asked for every single one.
    """

    def __init__(
        self, table: Table, rows: Rows, reader: Reader, shaped: Callable[[Any], Any], seen_all: Callable[[], None]
    ) -> None:
        self._ends, self._rows, self._reader = np.cumsum(table.lengths), rows, reader
        self._starts = self._ends - table.lengths
        self._pid = os.getpid()
        self._seen_all = seen_all
        self._seen = np.zeros(len(self) if len(self) >= FEW_ROWS else 0, bool)
        self._num_taken = 0
        self.shaped = shaped

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def take(self, numbers: np.ndarray) -> list[np.ndarray]:
        """Return rows by their numbers, from 0; of each column a new array, ``(len(numbers), *row_shape)``: one copy.

        Raises
        ------
        DataError
            A worker process of a ``DataLoader`` asks for rows that lie on another host.
        """
        partition = np.searchsorted(self._ends, numbers, "right")
        if os.getpid() != self._pid and not self._rows.is_here(partition).all():
            raise DataError(
                "Some of these rows lie on another host, and only the role's own process can have them brought, no "
                "worker process of a DataLoader.",
                change="Use num_workers=0: rows are gathered a batch at a time, without Python for single rows.",
            )
        rows = self._reader.gathered(partition, numbers - self._starts[partition], self._rows)
        self._note(numbers)
        return rows

    @contextmanager
    def lent(self, first: int, num_rows: int) -> Iterator[list[np.ndarray] | None]:
        """Consecutive rows as they lie in shared memory, of each column ``(num_rows, *row_shape)``: no copy.

        They may be written to, which no other process sees, and this one only while it has them. None if they are
        not of one partition on this host, or a column has text or sparse rows.
        """
        partition = int(np.searchsorted(self._ends, first, "right"))
        if not num_rows or first + num_rows > self._ends[partition]:
            yield None
            return
        rows = self._rows.lent(partition, first - int(self._starts[partition]), num_rows)
        try:
            yield rows
        finally:
            self._rows.forget(rows or [])

    def _note(self, numbers: np.ndarray) -> None:
        if not len(self._seen):
            return
        self._seen[numbers] = True
        self._num_taken += len(numbers)
        if self._num_taken >= len(self._seen):
            if self._seen.all():
                self._seen_all()
            self._seen = np.zeros(0, bool)
