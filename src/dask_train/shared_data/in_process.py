"""The data of a run whose only role is in the client's own process: mapped there, and nowhere else."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import dask
import numpy as np

from dask_train.cluster.peer import Peer
from dask_train.collections import Source, check_data
from dask_train.config import Deadlines
from dask_train.data.borrowing import borrow
from dask_train.data.columns import Columns, same_columns
from dask_train.data.rows import Rows, held_by
from dask_train.data.segment import Segment
from dask_train.data.table import Table
from dask_train.errors import DataError
from dask_train.shared_data.opened import open_rows
from dask_train.shared_data.parts import PART
from dask_train.shared_data.published import computed
from dask_train.shared_data.run_data import DataSetOnDask
from dask_train.shared_data.segments import SharedSegments, published_value, segments_in

Mapped = tuple[Table, Rows]


class InProcessData:
    """The data sets of such a run, by name; each is mapped once, when it is first asked for.

    Parameters
    ----------
    peer
        The client, whose cluster computes collections of Dask; None if there is none: then they are computed here,
        one partition after the other, or as ``dask.config`` says.
    named
        Those of the run.
    """

    def __init__(self, peer: Peer | None, named: Mapping[str, Source | SharedSegments]) -> None:
        self._peer, self._named = peer, named
        self._opened: dict[str, Mapped] = {}

    def open(self, name: str) -> tuple[int, Table, Rows]:
        """Return a data set of the run, or a published one, and its number, from 1.

        Raises
        ------
        DataError
            There is no data set of that name, or it can't be opened.
        """
        if name not in self._opened:
            self._opened[name] = mapped_here(self._peer, f"data set {name!r}", self._found(name))
        return (1 + list(self._opened).index(name), *self._opened[name])

    def num_rows(self) -> dict[int, int]:
        """Return rows of each data set that was opened, by its number."""
        return {number: table.num_rows for number, (table, _) in enumerate(self._opened.values(), 1)}

    def num_skipped(self) -> dict[str, int]:
        """Return rows that were left out of each data set that was opened, since they can't be decoded."""
        listed = {name: getattr(self._named.get(name), "num_listed", None) for name in self._opened}
        return {
            f"data set {name!r}": num - self._opened[name][0].num_rows
            for name, num in listed.items()
            if num is not None
        }

    def _found(self, name: str) -> Source | SharedSegments:
        if name in self._named:
            return self._named[name]
        if self._peer is None:
            known = ", ".join(self._named) or "none"
            raise DataError(
                f"There is no data set {name!r}; the run has {known}, and without a Dask client none are published."
            )
        published = self._peer.run(published_value, self._peer, name)
        try:
            return segments_in(published) or check_data(f"data set {name!r}", published, sparse=True)
        except (TypeError, ValueError) as error:
            raise DataError(str(error)) from error


def mapped_here(peer: Peer | None, what: str, source: Source | SharedSegments) -> Mapped:
    """Compute a data set, and map all of it into this process.

    Parameters
    ----------
    peer
        As of :class:`InProcessData`.
    what
        How errors call it.

    Raises
    ------
    DataError
        A partition can't be computed, or is lost. Without a client, what a partition raises is raised as it is.
    """
    if isinstance(source, SharedSegments):
        peer = Peer(source.futures[0].client)
        return _table(source.schema, source.lengths), peer.run(_opened, peer, what, source)
    if peer is None:
        return _computed_here(what, source)
    data = DataSetOnDask(peer, what, source)
    mapped: Mapped = peer.run(_computed, peer, what, data)
    return mapped


async def _opened(peer: Peer, what: str, segments: SharedSegments) -> Rows:
    await segments.check_there(peer, what)
    return await open_rows(peer, what, segments, range(len(segments.lengths)), Deadlines.from_dask_config().progress_s)


async def _computed(peer: Peer, what: str, data: DataSetOnDask) -> Mapped:
    """Return what is mapped keeps its memory, wherever it lies: nothing of it is needed on Dask any more."""
    segments = await computed(peer, what, data)
    try:
        return _table(segments.schema, segments.lengths), await _opened(peer, what, segments)
    finally:
        await data.cancel()


def _computed_here(what: str, source: Source) -> Mapped:
    segments: Sequence[Segment]
    # In this thread, where a debugger can follow that, too.
    scheduler = dask.config.get("scheduler", "synchronous")
    segments, form = dask.compute(source.delayed_parts(PART, Segment), source.delayed_form(PART), scheduler=scheduler)
    names, is_tuple = form or (source.names, source.is_tuple)
    try:
        columns = same_columns((segment.num_rows, segment.columns) for segment in segments)
    except ValueError as error:
        raise DataError(f"{what}: {error}.") from error
    filled = [(number, segment) for number, segment in enumerate(segments) if segment.num_rows]
    if not filled:
        raise DataError(f"{what} has no rows.")
    schema = Columns(columns=source.columns or (), names=names, is_tuple=is_tuple).with_rows(columns)
    lengths = np.array([segment.num_rows for segment in segments], np.int64)
    descriptor = borrow([segment.place for _, segment in filled])  # for as long as anything is mapped
    assert descriptor is not None
    try:
        partitions = held_by(((number, 0, segment.place) for number, segment in filled), len(columns))
        return _table(schema, lengths), Rows(schema, lengths, partitions, [descriptor])
    finally:
        os.close(descriptor)


def _table(schema: Columns, lengths: np.ndarray) -> Table:
    """Return all of it is the only rank's."""
    here: Any = np.zeros(len(lengths), np.int64)
    return Table(schema=schema, lengths=lengths, owner=here, host_of_rank=np.zeros(1, np.int64))
