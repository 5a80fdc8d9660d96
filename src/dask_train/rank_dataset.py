"""A data set as one rank goes through it: its share of each global batch, in order, accounted for."""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dask_train.data.account import Stretch
from dask_train.data.batches import Batch, Reader
from dask_train.data.buffers import Buffers
from dask_train.data.order import Shares, shares
from dask_train.data.plan import EpochPlan, Shuffle
from dask_train.data.rows import Rows
from dask_train.data.stream import Stream
from dask_train.data.streamed import StreamedRows
from dask_train.data.table import Table

if TYPE_CHECKING:
    from dask_train.session import Session


class DataSet:
    """One rank's view of a data set: batches of its share, in the framework's tensors.

    Attributes
    ----------
    num_rows
        Rows of the whole data set, over all ranks.
    schema
        Its columns.
    """

    def __init__(self, session: Session, number: int, table: Table, rows: Rows) -> None:
        self._session, self._number, self._table = session, number, table
        self._rows = rows
        self._buffers = Buffers(session._framework.empty)
        self._num_turns = 0
        self._rank, self._size = session.rank, session.size
        self.num_rows, self.schema = table.num_rows, table.schema

    def give_memory_back(self) -> None:
        """Keep no memory for batches to come; one who goes through the rows once more takes new."""
        self._buffers = Buffers(self._session._framework.empty)

    def whole(self) -> DataSet:
        """The same rows, all of them for this rank alone; what others lie on other hosts is fetched."""
        found = copy.copy(self)
        host = int(self._table.host_of_rank[self._session.rank])
        found._table = replace(self._table, host_of_rank=np.array([host]))
        found._rank, found._size = 0, 1
        return found

    def batches(
        self,
        *,
        epochs: int = 1,
        batch_size: int = 32,
        shuffle: Shuffle = True,
        seed: int = 0,
        start: tuple[int, int] = (0, 0),
    ) -> Iterator[Any]:
        """As :meth:`Session.batches`, of this data set."""
        _check_count("epochs", epochs)
        _check_count("batch_size", batch_size)
        if shuffle not in (True, False, "partition"):
            raise ValueError(f"shuffle is {shuffle!r}; it is True, False or 'partition'.")
        num_batches = -(-self.num_rows // batch_size)
        given: Any = start
        if len(given) != 2 or min(given) < 0 or given[1] > num_batches:
            raise ValueError(
                f"start is {start!r}; it is an epoch and a batch in it, and an epoch has {num_batches} batches here. "
                "Pass a session.position that was taken with the same batch_size."
            )
        self._num_turns += 1
        return self._batches(epochs, batch_size, shuffle, seed, start, self._num_turns - 1)

    def _batches(
        self, epochs: int, batch_size: int, shuffle: Shuffle, seed: int, start: tuple[int, int], turn: int
    ) -> Iterator[Any]:
        session, account = self._session, self._session._account
        num_batches = -(-self.num_rows // batch_size)
        for epoch in range(start[0], epochs):
            first = start[1] if epoch == start[0] else 0
            plan = EpochPlan(
                lengths=self._table.lengths, shuffle=shuffle, seed=seed, epoch=epoch, window=self._table.window
            )
            order = shares(
                plan,
                batch_size=batch_size,
                rank=self._rank,
                size=self._size,
                owner=self._table.owner,
                host_of_rank=self._table.host_of_rank,
                first=first,
            )
            stretch = account.begin(
                Stretch(dataset=self._number, turn=turn, epoch=epoch, batch_size=batch_size, first=first)
            )
            with self._read(order, plan, turn) as batches:
                batch_number = first
                for batch in batches:
                    batch_number += 1
                    given = self._shaped(session._framework.to_batch(batch.arrays))
                    session.global_rows = batch.global_rows
                    session.position = (epoch, batch_number) if batch_number < num_batches else (epoch + 1, 0)
                    session._link.moved(f"working on batch {session._count_batch()}", batches=1)
                    account.taken(stretch)
                    del batch  # its memory is free for the next as soon as the user's loop lets it go
                    try:
                        yield given
                    finally:  # also where the loop is left
                        account.done(stretch)
                    del given
                    session._link.moved("waiting for a batch")
        session._link.moved("past its last batch")

    @contextmanager
    def _read(self, order: Iterator[Shares], plan: EpochPlan, turn: int) -> Iterator[Iterator[Batch]]:
        link, streamed = self._session._link, Stream(self._number, turn, plan.epoch, plan.shuffle, plan.seed)
        rows: Rows | StreamedRows = self._rows
        if self._table.window is not None:
            open_group = functools.partial(link.open_group, streamed)
            rows = StreamedRows(self._table, plan, self._rank, open_group)
        fetch = functools.partial(link.rows_from_elsewhere, streamed)
        reader = Reader(fetch, self._buffers, self._session._framework.views)
        try:
            with closing(reader.read(order, rows, in_order=plan.shuffle is False)) as batches:
                yield batches
        finally:
            if self._table.window is not None:
                link.leave(streamed)

    def _shaped(self, tensors: tuple[Any, ...]) -> Any:
        schema = self._table.schema
        if schema.names is not None:
            return dict(zip(schema.names, tensors, strict=True))
        return tensors if schema.is_tuple else tensors[0]


def _check_count(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} is {value!r}; it is a whole number of at least 1.")
