"""One rank's batches: views of the shared rows where that can be, else gathered ahead into memory that is reused."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass

import numpy as np

from dask_train.data.ahead import Ahead
from dask_train.data.buffers import Buffers
from dask_train.data.order import Share
from dask_train.data.rows import Rows
from dask_train.data.streamed import StreamedRows

# Batches are gathered and handed over in bundles: NumPy's calls and a thread's waits for the interpreter's lock cost
# more than the rows of a small batch. The first bundle is one batch, so that the first comes soon.
BUNDLE = 8
BUNDLE_BYTES = 4 << 20
# What may wait, in bundles and in bytes.
MAX_AHEAD = 2
MAX_AHEAD_BYTES = 64 << 20

Fetch = Callable[[np.ndarray, np.ndarray], list[np.ndarray]]


@dataclass(frozen=True, kw_only=True)
class Batch:
    """A share of a global batch.

    Attributes
    ----------
    arrays
        ``(k, *row_shape)`` for each column, C-contiguous. Views of the shared rows are read-only unless the reader
        asked otherwise.
    global_rows
        Rows of the global batch over all ranks.
    """

    arrays: tuple[np.ndarray, ...]
    global_rows: int


class Reader:
    """Turns shares into batches.

    Parameters
    ----------
    fetch
        Gets rows that are not: called with their partitions and numbers, returns ``(k, *row_shape)`` of each column.
    buffers
        Where gathered batches go.
    views
        Whether batches may lie in the shared rows themselves, and whether they may be written to there, which changes
        what this process reads later: ``"read-only"``, ``"writable"``, or None for copies only.
    """

    def __init__(self, fetch: Fetch, buffers: Buffers, views: str | None) -> None:
        self._fetch, self._buffers, self._views = fetch, buffers, views

    def read(
        self, shares: Iterator[Share], rows: Rows | StreamedRows, *, in_order: bool = False
    ) -> Generator[Batch, None, None]:
        """The batches of those shares; close the iterator to end the thread that prepares them.

        Parameters
        ----------
        shares
            Which rows.
        rows
            What of the data set can be read here.
        in_order
            Whether rows of each partition come in the order that they have there. Then, where views may be given,
            nothing has to be prepared.
        """
        if in_order and self._views and isinstance(rows, Rows) and rows.all_here:
            for share in shares:
                yield self._in_place(share, rows)
            return
        first = next(shares, None)
        if first is None:
            return
        rows.turn_to(first.partition)
        batch_bytes = max(1, len(first.row) * rows.schema.row_bytes)
        bundle = max(1, min(BUNDLE, BUNDLE_BYTES // batch_bytes))
        depth = max(1, min(MAX_AHEAD, MAX_AHEAD_BYTES // (bundle * batch_bytes)))
        ahead = Ahead(self._bundles(itertools.chain([first], shares), rows, bundle), depth)
        try:
            for batches in ahead:
                while batches:
                    yield batches.pop()
        finally:
            ahead.close()

    def _in_place(self, share: Share, rows: Rows) -> Batch:
        views = rows.view(share.partition, share.row)
        for view in views:
            if view is not None:
                view.flags.writeable = self._views == "writable"
        columns = zip(rows.schema.columns, views, strict=True)
        gathered = [None if view is not None else self._buffers.array(of, len(share.row)) for of, view in columns]
        rows.take(share.partition, share.row, gathered)
        pairs = zip(views, gathered, strict=True)
        arrays = tuple(array for pair in pairs for array in pair if array is not None)
        return Batch(arrays=arrays, global_rows=share.global_rows)

    def _bundles(self, shares: Iterator[Share], rows: Rows | StreamedRows, most: int) -> Iterator[list[Batch]]:
        """Lists of batches, the last one first."""
        size = 1
        while some := list(itertools.islice(shares, size)):
            partition = np.concatenate([share.partition for share in some])
            row = np.concatenate([share.row for share in some])
            rows.turn_to(partition)
            columns = self._gathered(partition, row, rows)
            batches, start = [], 0
            for share in some:
                its = slice(start, start + len(share.row))
                batches.append(Batch(arrays=tuple(array[its] for array in columns), global_rows=share.global_rows))
                start = its.stop
            del columns
            yield batches[::-1]
            size = min(2 * size, most)

    def _gathered(self, partition: np.ndarray, row: np.ndarray, rows: Rows | StreamedRows) -> list[np.ndarray]:
        """Rows of each column, those from elsewhere fetched at once."""
        columns = [self._buffers.array(column, len(row)) for column in rows.schema.columns]
        if rows.all_here or (is_here := rows.is_here(partition)).all():
            rows.take(partition, row, columns)
            return columns
        local = [np.empty((int(is_here.sum()), *array.shape[1:]), array.dtype) for array in columns]
        rows.take(partition[is_here], row[is_here], local)
        fetched = self._fetch(partition[~is_here], row[~is_here])
        for array, mine, others in zip(columns, local, fetched, strict=True):
            array[is_here], array[~is_here] = mine, others
        return columns
