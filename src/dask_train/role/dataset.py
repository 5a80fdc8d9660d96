"""A data set as one rank goes through it: its share of each global batch, in order, accounted for."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from dask_train.arguments import check_whole_number
from dask_train.data.account import WHOLE, BatchRange
from dask_train.data.assigned import assigned
from dask_train.data.batches import Batch, Reader
from dask_train.data.buffers import Buffers
from dask_train.data.columns import Columns
from dask_train.data.decoding import Decoding, Drawing
from dask_train.data.order import Shares, shares
from dask_train.data.plan import EpochPlan, Shuffle
from dask_train.data.rows import Rows
from dask_train.data.sparse_rows import set_read_only
from dask_train.data.stream import Stream
from dask_train.data.streamed import StreamedRows
from dask_train.data.table import Table
from dask_train.role.context import Context
from dask_train.role.rows_by_number import RowsByNumber
from dask_train.role.time_spent import DATA


class DataSet:
    """One rank's view of a data set: batches of its share, in the framework's tensors.

    Attributes
    ----------
    num_rows
        Rows of the whole data set, over all ranks.
    schema
        Its columns.
    """

    def __init__(self, context: Context, number: int, table: Table, rows: Rows) -> None:
        self._context, self._number, self._table = context, number, table
        self._rows = rows
        self._buffers = Buffers(context.framework.empty)
        self._num_passes = 0
        # Of the account: the pass, and batch size and place that it has come to, from which a later call continues it.
        self._counted_pass, self._reached = 0, (0, (0, 0))
        self._some_row: Callable[[], tuple[np.ndarray, ...]] | None = None
        self._rank, self._is_whole = context.rank, False
        self.num_rows, self.schema = table.num_rows, table.schema.in_batch

    @property
    def _size(self) -> int:
        """Return how many ranks share the rows now."""
        return 1 if self._is_whole else self._context.size

    def __len__(self) -> int:
        """Refuse: a reader of rows by number, as torch's ``DataLoader``, needs another view of the data.

        Raises
        ------
        TypeError
            In any case.
        """
        raise TypeError(
            "A DataSet has no rows by number: read it with batches(). For a DataLoader of torch, pass "
            "session.torch_dataset(), or session.torch_dataset(name) for a named data set."
        )

    def __bool__(self) -> bool:
        return True

    def give_memory_back(self) -> None:
        """Release the memory for batches; another pass over the rows allocates it anew."""
        self._buffers = Buffers(self._context.framework.empty)

    def whole(self) -> DataSet:
        """Return the same rows, all of them for this rank alone; rows on other hosts are fetched.

        Returns
        -------
        DataSet
            Open for as long as this one.
        """
        whole = copy.copy(self)
        host = self._table.host_of(self._context.rank)
        whole._table = replace(self._table, host_of_rank=np.array([host]))
        whole._rank, whole._is_whole = 0, True
        return whole

    def rows_by_number(self) -> RowsByNumber:
        """Return all rows of the data set, on every rank, by their numbers in the order of the collection.

        Returns
        -------
        RowsByNumber
            Its rows count nowhere in the ledger.

        Raises
        ------
        ValueError
            The data set is streamed: only some of it is in memory at a time.
        """
        if self._table.window is not None or isinstance(self._rows, StreamedRows):
            raise ValueError(
                "Rows by their numbers, out of data that is streamed: only some of it is in memory at a time. "
                "Go through session.batches(), or leave streaming out."
            )
        if any(column.decoder is not None and column.decoder.is_random for column in self._table.schema):
            raise ValueError(
                "Rows by their numbers, out of files with augment=: random numbers of a row depend on the epoch, which "
                "only session.batches() knows. Leave augment= out, and augment in your own loop."
            )
        link = self._context.link

        def fetch(partition: np.ndarray, row: np.ndarray) -> list[np.ndarray]:
            link.moved("waiting for rows from another host")
            with link.spent.on(DATA):
                return link.rows_from_elsewhere(Stream(self._number, 0, 0, False, 0), partition, row)

        def seen_all() -> None:
            if self._number == 0 and self._rank == 0 and self._size > 1:
                link.notice(
                    f"{self._size} ranks share {self.num_rows:,} rows, and rank 0 has gone through all of them. A "
                    "DataLoader of a loop of one's own needs sampler=DistributedSampler(dataset)."
                )

        reader = Reader(
            fetch, Buffers(self._context.framework.empty), None, Decoding(Drawing(lengths=self._table.lengths))
        )
        return RowsByNumber(self._table, self._rows, reader, self._shaped, seen_all)

    def some_row(self) -> Any:
        """Return a batch of one row of the data, whichever; while batches are taken. It counts nowhere.

        For a rank that has no rows of a batch and takes a step all the same: a step need not take made-up values.

        Returns
        -------
        tensor, or tuple or dict of them
            As a batch is.
        """
        assert self._some_row is not None
        return self._shaped(self._context.framework.to_batch(self._some_row()))

    def batches(
        self,
        *,
        epochs: int = 1,
        batch_size: int = 32,
        shuffle: Shuffle = True,
        seed: int = 0,
        start: tuple[int, int] = (0, 0),
    ) -> Iterator[Any]:
        """Give this rank's share of each global batch, as :meth:`Session.batches` does of the role's own data.

        Parameters
        ----------
        epochs, batch_size, shuffle, seed, start
            As :meth:`Session.batches` takes them.

        Returns
        -------
        iterator
            Of this rank's share of each global batch.

        Raises
        ------
        ValueError
            A count is below 1, or ``start`` is no place in these epochs.
        """
        check_whole_number("epochs", epochs, 1)
        check_whole_number("batch_size", batch_size, 1)
        if shuffle not in (True, False, "partition"):
            raise ValueError(f"shuffle is {shuffle!r}; it is True, False or 'partition'.")
        num_batches = -(-self.num_rows // batch_size)
        position: Any = start
        if len(position) != 2 or min(position) < 0 or position[1] > num_batches:
            raise ValueError(
                f"start is {start!r}; it is an epoch and a batch in it, and an epoch has {num_batches} batches here. "
                "Pass a session.position that was taken with the same batch_size."
            )
        if self._reached != (batch_size, tuple(start)):
            self._counted_pass = self._num_passes
        pass_numbers = self._num_passes, self._counted_pass
        return self._begin(self._batches(epochs, batch_size, shuffle, seed, start, pass_numbers))

    def partitions(self) -> Iterator[Any]:
        """Give this rank's own partitions, as :meth:`Session.partitions` does of the role's own data.

        Returns
        -------
        iterator
            Of partitions, as the data was given.
        """
        behind = [one for one in self._context.behind if one.dataset == self._number]
        # A pass within which the checkpoint was kept has no place to go on from, and is made again.
        num_behind = max((one.turn + (not one.is_open) for one in behind), default=0)
        return self._begin(self._partitions(self._num_passes, num_behind + self._num_passes))

    def continue_pass(self) -> None:
        """Let the next pass over the data count as the last one, which is left, and continues among other ranks."""
        self._num_passes = max(0, self._num_passes - 1)

    @property
    def partition_numbers(self) -> np.ndarray:
        """The numbers in the collection, int64 ascending, of what :meth:`partitions` gives."""
        return assigned(self._table, self._rank)

    def _begin(self, data_pass: Generator[Any, None, None]) -> Iterator[Any]:
        self._num_passes += 1
        self._context.open_passes.add(data_pass)
        return data_pass

    def _partitions(self, pass_number: int, counted_pass: int) -> Generator[Any, None, None]:
        account, link = self._context.account, self._context.link
        begun = BatchRange(dataset=self._number, turn=counted_pass, epoch=0, batch_size=WHOLE, first=0)
        stretch = account.begin(replace(begun, rank=self._context.rank, is_open=1))
        plan = EpochPlan(lengths=self._table.lengths, shuffle=False, seed=0, epoch=0, window=self._table.window)
        with self._opened(plan, pass_number) as (rows, streamed), self._decoding() as decoding:
            for number in assigned(self._table, self._rank).tolist():
                num_rows = int(self._table.lengths[number])
                this = np.array([number])
                with link.spent.on(DATA):
                    group = int(plan.group_of_partition[number])
                    rows.turn_to(group, group)
                all_of_it = np.full(num_rows, number), np.arange(num_rows)
                if rows.is_here(this)[0]:
                    columns = list(rows.partition(number))
                else:
                    with link.spent.on(DATA):
                        fetched = link.rows_from_elsewhere(streamed, *all_of_it)
                        columns = _as_in_partition(rows.schema, fetched)
                with link.spent.on(DATA):
                    columns = decoding.rows(rows.schema, columns, *all_of_it, self._buffers)
                for column in columns:
                    set_read_only(column)
                link.moved(f"working on partition {number}", rows=num_rows)
                account.taken(stretch, num_rows)
                try:
                    yield self._shaped(tuple(columns))
                except GeneratorExit:
                    account.left(stretch)
                    account.over(stretch)
                    raise
                account.done(stretch)
                del columns
        account.over(stretch)
        link.moved("past its last partition")

    def _batches(
        self,
        epochs: int,
        batch_size: int,
        shuffle: Shuffle,
        seed: int,
        start: tuple[int, int],
        pass_numbers: tuple[int, int],
    ) -> Generator[Any, None, None]:
        (pass_number, counted_pass), context, account = pass_numbers, self._context, self._context.account
        num_batches, size = -(-self.num_rows // batch_size), self._size
        counted_size = 0 if self._is_whole else size  # all rows count as what they would be among all
        num_shares = 0 if self._is_whole else context.num_shares
        host_of_rank = self._table.among(size).host_of_rank
        for epoch in range(start[0], epochs):
            first = start[1] if epoch == start[0] else 0
            plan = EpochPlan(
                lengths=self._table.lengths, shuffle=shuffle, seed=seed, epoch=epoch, window=self._table.window
            )
            order = shares(
                plan,
                batch_size=batch_size,
                rank=self._rank,
                size=size,
                num_shares=num_shares,
                owner=self._table.owner,
                host_of_rank=host_of_rank,
                first=first,
            )
            begun = BatchRange(
                dataset=self._number,
                turn=counted_pass,
                epoch=epoch,
                batch_size=batch_size,
                first=first,
                size=counted_size,
                shares=num_shares,
            )
            stretch = account.begin(begun)
            with self._read(order, plan, pass_number) as (batches, some_row):
                batch_number = first
                while (batch := self._next(batches)) is not None:
                    batch_number += 1
                    shaped = self._shaped(context.framework.to_batch(batch.arrays))
                    context.global_rows = batch.global_rows
                    reached = (epoch, batch_number) if batch_number < num_batches else (epoch + 1, 0)
                    self._reached = batch_size, reached
                    if self._number == 0 or not context.has_own_data:
                        context.position = reached
                        context.num_batches += 1
                        doing = f"working on batch {context.num_batches}"
                        context.link.moved(doing, batches=1, rows=len(batch.arrays[0]))
                    else:
                        context.link.moved(f"working on batch {batch_number} of another data set")
                    account.taken(stretch)
                    self._some_row = some_row
                    del batch  # its memory is free for the next as soon as the user's loop lets it go
                    try:
                        yield shaped
                    except GeneratorExit:
                        account.left(stretch)
                        raise
                    account.done(stretch)
                    del shaped
                    context.link.moved("waiting for a batch")
        context.link.moved("past its last batch")

    def _next(self, batches: Iterator[Batch]) -> Batch | None:
        with self._context.link.spent.on(DATA):
            return next(batches, None)

    @contextmanager
    def _read(
        self, order: Iterator[Shares], plan: EpochPlan, pass_number: int
    ) -> Iterator[tuple[Iterator[Batch], Callable[[], tuple[np.ndarray, ...]]]]:
        with self._opened(plan, pass_number) as (rows, streamed), self._decoding(plan) as decoding:
            fetch = functools.partial(self._context.link.rows_from_elsewhere, streamed)
            reader = Reader(fetch, self._buffers, self._context.framework.views, decoding)
            try:
                with closing(reader.read(order, rows, in_order=plan.shuffle is False)) as batches:
                    yield batches, functools.partial(reader.some_row, rows)
            finally:
                self._some_row = None

    @contextmanager
    def _opened(self, plan: EpochPlan, pass_number: int) -> Iterator[tuple[Rows | StreamedRows, Stream]]:
        """Open the rows of an epoch, which come in groups where they are streamed."""
        link, streamed = self._context.link, Stream(self._number, pass_number, plan.epoch, plan.shuffle, plan.seed)
        if self._table.window is None:
            yield self._rows, streamed
            return
        try:
            yield StreamedRows(self._table, plan, self._rank, functools.partial(link.open_group, streamed)), streamed
        finally:
            link.leave(streamed)

    def _decoding(self, plan: EpochPlan | None = None) -> Decoding:
        """Return what decodes rows of an epoch; without one, those that are in no batch."""
        drawing = Drawing(lengths=self._table.lengths)
        if plan is not None:
            drawing = replace(drawing, seed=plan.seed, epoch=plan.epoch)
        return Decoding(drawing, self._context.num_threads)

    def _shaped(self, tensors: tuple[Any, ...]) -> Any:
        schema = self._table.schema
        if schema.names is not None:
            return dict(zip(schema.names, tensors, strict=True))
        return tensors if schema.is_tuple else tensors[0]


def _as_in_partition(schema: Columns, fetched: Sequence[np.ndarray]) -> list[Any]:
    """Return rows that were fetched as partitions have them."""
    return [
        rows if kind.layout is None else kind.layout.gathered(rows, kind.dtype, kind.row_shape)
        for kind, rows in zip(schema.columns, fetched, strict=True)
    ]
