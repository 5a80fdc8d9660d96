"""One rank's batches: views of the shared rows where that can be, else gathered ahead into memory that is reused."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass

import numpy as np

from dask_train.data.ahead import Ahead
from dask_train.data.buffers import Buffers
from dask_train.data.columns import Schema
from dask_train.data.order import Share
from dask_train.data.rows import Rows
from dask_train.data.streamed import StreamedRows

# What may be prepared ahead, in batches and in bytes.
MAX_AHEAD = 4
MAX_AHEAD_BYTES = 64 << 20
# How many batches' rows are asked for at once, where they lie on other hosts.
ASK_BATCHES = 8

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

    def read(self, shares: Iterator[Share], rows: Rows | StreamedRows) -> Generator[Batch, None, None]:
        """The batches of those shares, prepared ahead by a thread; close the iterator to end it.

        Parameters
        ----------
        shares
            Which rows.
        rows
            What of the data set can be read here.
        """
        first = next(shares, None)
        if first is None:
            return
        rows.turn_to(first.partition)
        batch_bytes = max(1, len(first.row) * rows.schema.row_bytes)
        depth = max(1, min(MAX_AHEAD, MAX_AHEAD_BYTES // batch_bytes))
        ahead = Ahead(self._prepared(itertools.chain([first], shares), rows), depth)
        try:
            yield from ahead
        finally:
            ahead.close()

    def _prepared(self, shares: Iterator[Share], rows: Rows | StreamedRows) -> Iterator[Batch]:
        if rows.all_here:
            for share in shares:
                rows.turn_to(share.partition)
                yield self._local(share, rows)
            return
        while some := list(itertools.islice(shares, ASK_BATCHES)):
            rows.turn_to(np.concatenate([share.partition for share in some]))
            yield from self._mixed(some, rows)

    def _local(self, share: Share, rows: Rows | StreamedRows) -> Batch:
        views = rows.view(share.partition, share.row) if self._views else None
        if views is not None:
            for view in views:
                view.flags.writeable = self._views == "writable"
            return Batch(arrays=tuple(views), global_rows=share.global_rows)
        arrays = self._new(rows.schema, len(share.row))
        rows.take(share.partition, share.row, arrays)
        return Batch(arrays=arrays, global_rows=share.global_rows)

    def _mixed(self, some: list[Share], rows: Rows | StreamedRows) -> Iterator[Batch]:
        """Batches of which some rows come from elsewhere: those of several batches are asked for at once."""
        here = [rows.is_here(share.partition) for share in some]
        away = [(share.partition[~is_here], share.row[~is_here]) for share, is_here in zip(some, here, strict=True)]
        partition, row = (np.concatenate(parts) for parts in zip(*away, strict=True))
        columns = self._fetch(partition, row) if len(row) else []
        start = 0
        for share, is_here, (_, rows_away) in zip(some, here, away, strict=True):
            if is_here.all():
                yield self._local(share, rows)
                continue
            arrays = self._new(rows.schema, len(share.row))
            local = [array[is_here] for array in arrays]
            rows.take(share.partition[is_here], share.row[is_here], local)
            for array, mine, column in zip(arrays, local, columns, strict=True):
                array[is_here] = mine
                array[~is_here] = column[start : start + len(rows_away)]
            start += len(rows_away)
            yield Batch(arrays=arrays, global_rows=share.global_rows)

    def _new(self, schema: Schema, num_rows: int) -> tuple[np.ndarray, ...]:
        return tuple(self._buffers.array(column, num_rows) for column in schema.columns)
