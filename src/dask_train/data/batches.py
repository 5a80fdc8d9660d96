"""One rank's batches: views of the shared rows where that can be, else gathered ahead into memory that is reused."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Iterator
from typing import NamedTuple

import numpy as np

from dask_train.data.ahead import Ahead
from dask_train.data.buffers import Buffers
from dask_train.data.columns import Column
from dask_train.data.decoding import Decoding
from dask_train.data.order import Shares
from dask_train.data.rows import Rows
from dask_train.data.streamed import StreamedRows

# Batches are gathered and handed over in bundles: NumPy's calls and a thread's waits for the interpreter's lock cost
# more than the rows of a small batch. The first bundle is one batch, so that the first comes soon.
BUNDLE = 32
# The same of rows that are streamed: a bundle that reaches into several groups keeps all of them in memory.
STREAMED_BUNDLE = 8
BUNDLE_BYTES = 4 << 20
# What may wait, in bundles and in bytes.
MAX_AHEAD = 2
MAX_AHEAD_BYTES = 64 << 20

Fetch = Callable[[np.ndarray, np.ndarray], list[np.ndarray]]


class Batch(NamedTuple):  # one is made a step, and a dataclass takes longer
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
    """Turns shares of global batches into batches.

    Parameters
    ----------
    fetch
        Fetches rows that are not on this host: called with their partitions and numbers, it returns ``(k, *row_shape)``
        of each column.
    buffers
        Where gathered batches go.
    views
        Whether batches may lie in the shared rows themselves, and whether they may be written to there, which changes
        what this process reads later: ``"read-only"``, ``"writable"``, or None for copies only.
    decoding
        Decodes columns of files. Default: there are none.
    """

    def __init__(self, fetch: Fetch, buffers: Buffers, views: str | None, decoding: Decoding | None = None) -> None:
        self._fetch, self._buffers, self._views, self._decoding = fetch, buffers, views, decoding

    def read(
        self, shares: Iterator[Shares], rows: Rows | StreamedRows, *, in_order: bool = False
    ) -> Generator[Batch, None, None]:
        """Yield the batches of those shares; close the iterator to end the thread that prepares them.

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
        if in_order and self._views and isinstance(rows, Rows) and rows.all_here and not rows.schema.are_decoded:
            for some in shares:
                yield from self._zero_copy(some, rows)
            return
        first = next(shares, None)
        if first is None:
            return
        rows.turn_to(*first[:1].span)
        # The same for all ranks, whose shares differ by a row: those that read further ahead would wait for the others.
        share_rows = -(-first.global_rows // first.num_ranks)
        batch_bytes = max(1, share_rows * rows.schema.in_batch.row_bytes)
        most = BUNDLE if isinstance(rows, Rows) else STREAMED_BUNDLE
        bundle = max(1, min(most, BUNDLE_BYTES // batch_bytes))
        depth = max(1, min(MAX_AHEAD, MAX_AHEAD_BYTES // (bundle * batch_bytes)))
        ahead = Ahead(self._bundles(itertools.chain([first], shares), rows, bundle), depth)
        try:
            for batches in ahead:
                while batches:
                    yield batches.pop()
        finally:
            ahead.close()

    def some_row(self, rows: Rows | StreamedRows) -> tuple[np.ndarray, ...]:
        """Return a row of those that are read: ``(1, *row_shape)`` of each column, for a rank that needs one."""
        return tuple(self.gathered(rows.some_partition(), np.zeros(1, np.int64), rows))

    def _zero_copy(self, some: Shares, rows: Rows) -> Iterator[Batch]:
        """Batches where the rows are; those whose rows lie apart, or not aligned, are copied."""
        columns = [column.view() for column in rows.columns]
        for column in columns:
            column.flags.writeable = self._views == "writable"
        size = some.share_rows
        nowhere = [[-1 if kind.layout is not None else 0] * len(some) for kind in rows.schema.columns]
        starts = rows.starts(some.partition, some.row, size) if size else nowhere
        for number, first in enumerate(zip(*starts, strict=True)):
            pairs = zip(columns, first, strict=True)
            if min(first) >= 0:
                yield Batch(tuple([column[at : at + size] for column, at in pairs]), some.global_rows)
                continue
            kinds = zip(rows.schema.columns, first, strict=True)
            copies = [None if at >= 0 else self._buffers.array(kind, size) for kind, at in kinds]
            one = some[number : number + 1]
            rows.take(one.partition, one.row, copies)
            views = [column[at : at + size] for column, at in pairs]
            yield Batch(
                tuple(view if copy is None else copy for view, copy in zip(views, copies, strict=True)),
                some.global_rows,
            )

    def _bundles(self, shares: Iterator[Shares], rows: Rows | StreamedRows, most: int) -> Iterator[list[Batch]]:
        """Yield lists of batches, the last one first."""
        length = 1
        for some in shares:
            first = 0
            while first < len(some):
                bundle = some[first : first + length]
                rows.turn_to(*bundle.span)
                columns = self.gathered(bundle.partition, bundle.row, rows)
                size = some.share_rows
                cuts = range((len(bundle) - 1) * size, -1, -size) if size else [0] * len(bundle)
                batches = [Batch(tuple(array[at : at + size] for array in columns), some.global_rows) for at in cuts]
                del columns
                yield batches
                first += length
                length = min(2 * length, most)

    def gathered(self, partition: np.ndarray, row: np.ndarray, rows: Rows | StreamedRows) -> list[np.ndarray]:
        """Rows of each column, ``(len(row), *row_shape)``: those from elsewhere are fetched at once, files decoded.

        Parameters
        ----------
        partition, row
            int64 ``(n,)``: which.
        rows
            What of the data set can be read here.
        """
        stored = self._stored(partition, row, rows)
        if not rows.schema.are_decoded:
            return stored
        assert self._decoding is not None
        return self._decoding.rows(rows.schema, stored, partition, row, self._buffers)

    def _stored(self, partition: np.ndarray, row: np.ndarray, rows: Rows | StreamedRows) -> list[np.ndarray]:
        columns = [self._buffers.array(column, len(row)) for column in rows.schema.columns]
        if rows.all_here or (is_here := rows.is_here(partition)).all():
            rows.take(partition, row, columns)
            return columns
        local = [np.empty((int(is_here.sum()), *array.shape[1:]), array.dtype) for array in columns]
        rows.take(partition[is_here], row[is_here], local)
        fetched = self._fetch(partition[~is_here], row[~is_here])
        for kind, array, mine, others in zip(rows.schema.columns, columns, local, fetched, strict=True):
            array[is_here], array[~is_here] = mine, _as_in_batch(kind, others)
        return columns


def _as_in_batch(column: Column, fetched: np.ndarray) -> np.ndarray:
    """Return rows that were fetched as batches have them, before they are decoded."""
    if column.layout is None:
        return fetched
    rows = column.layout.gathered(fetched, column.dtype, column.row_shape)
    dense: np.ndarray = rows.toarray() if column.is_sparse else rows
    return dense
