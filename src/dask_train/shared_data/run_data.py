"""The data of a run: computed by Dask where it is, described to the driver, released with the run."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from distributed import Future, as_completed

from dask_train.cluster.peer import Peer
from dask_train.cluster.submitted import submitted
from dask_train.collections.source import Source
from dask_train.data.columns import Columns, same_columns
from dask_train.errors import DataError
from dask_train.shared_data.described import cancel, check_computed, describe
from dask_train.shared_data.parts import PART, BatchForm, finish_segment
from dask_train.shared_data.segments import SharedSegments, published_value, segments_in
from dask_train.shared_data.streaming import StreamOnDask
from dask_train.shared_data.tables import table_for_ranks


class DataSetOnDask:
    """One data set as segments in Dask's memory; made in the user's thread, awaited on the event loop.

    Parameters
    ----------
    peer
        The client.
    what
        How errors call it.
    source
        The data.
    outlives
        Whether it may be needed when this client is gone, or has changed its arrays: rows of the client then go in
        Dask's graph, with which Dask computes lost partitions again. Default: tasks open them from the client.

    Attributes
    ----------
    keys
        The keys of the segments, in order.
    where
        The addresses of the Dask workers that held each, when it was described; none for one that was being computed.
    num_rows
        Rows of all of them, once they are described.
    num_listed
        As of :class:`~dask_train.collections.source.Source`.
    """

    num_listed: int | None = None

    def __init__(self, peer: Peer, what: str, source: Source, *, outlives: bool = False) -> None:
        self._peer, self._what = peer, what
        self._form = BatchForm(peer, source)
        parts = source.delayed_parts(PART, finish_segment())
        compute = peer.dask_end.compute if outlives else partial(submitted, peer.dask_end)
        self._futures: list[Future] = compute(parts)
        self.keys = [future.key for future in self._futures]
        self.num_rows, self.num_listed = 0, source.num_listed
        self._schema: Columns
        self._lengths = np.empty(0, np.int64)
        self.where: list[list[str]] = []
        self._tables: dict[str, bytes] = {}

    async def described(self, progressed: Callable[[], None]) -> None:
        """Wait until every partition is computed, and see what they are.

        Raises
        ------
        DataError
            A partition can't be computed, or two of them differ.
        """
        async for future in as_completed(self._futures, loop=self._peer.loop):
            await check_computed(future, self._what)
            progressed()
        descriptions, where = await describe(self._peer, self._what, self.keys)
        parts = [descriptions[key] for key in self.keys]
        try:
            columns = same_columns(parts)
        except ValueError as error:
            raise DataError(f"{self._what}: {error}.") from error
        self._schema = await self._form.schema(columns)
        self._lengths = np.array([num_rows for num_rows, _ in parts], np.int64)
        self.where = [where[key] for key in self.keys]
        self.num_rows = int(self._lengths.sum())
        if not self.num_rows:
            raise DataError(f"{self._what} has no rows.")

    def table(self, role: str, ranks: Sequence[str]) -> bytes:
        """Return the data set as a role's readers see it, pickled; where ranks are at the first call counts.

        Parameters
        ----------
        ranks
            The address of each rank's Dask worker.
        """
        if role not in self._tables:
            table, _ = table_for_ranks(self._schema, self._lengths, ranks, self.where)
            self._tables[role] = pickle.dumps(table)
        return self._tables[role]

    @property
    def done(self) -> list[int]:
        """The numbers of the partitions that are computed."""
        return [number for number, future in enumerate(self._futures) if future.done()]

    def own_keys(self) -> list[Any]:
        """Return the keys of what is computed for it alone."""
        return self.keys

    def segments(self) -> SharedSegments:
        """Return the data set as others can use it, once it is described."""
        return SharedSegments(schema=self._schema, lengths=self._lengths, futures=tuple(self._futures))

    async def cancel(self) -> None:
        """Let Dask stop computing it, and forget it."""
        await self._form.cancel()
        await cancel(self._peer, self._futures)
        self._futures = []


class SharedOnDask(DataSetOnDask):
    """A data set whose segments exist, and may be others' as well: nothing is computed; they are only released."""

    def __init__(self, peer: Peer, what: str, shared: SharedSegments) -> None:
        self._peer, self._what = peer, what
        self._futures = list(shared.futures)
        self.keys, self.num_rows = shared.keys, shared.num_rows
        self._schema, self._lengths = shared.schema, shared.lengths
        self.where: list[list[str]] = []
        self._tables: dict[str, bytes] = {}

    async def described(self, progressed: Callable[[], None]) -> None:  # noqa: ARG002 - nothing is computed
        """Check that every partition is there, or is being computed again.

        Raises
        ------
        DataError
            One is lost.
        """
        self.where = await self.segments().check_there(self._peer, self._what)

    def own_keys(self) -> list[Any]:
        """None: it may be others' as well."""
        return []

    async def cancel(self) -> None:
        """Forget the data set."""
        self._futures = []


class RunData:
    """The data sets of a run, by role, and by name those that roles open themselves."""

    def __init__(
        self,
        peer: Peer,
        data: Mapping[str, Source | SharedSegments],
        window: int | None = None,
        named: Mapping[str, Source | SharedSegments] | None = None,
    ) -> None:
        self.by_role: dict[str, Any] = {}
        for role, source in data.items():
            what = f"data[{role!r}]"
            if window is None or isinstance(source, SharedSegments):  # that is in memory already
                self.by_role[role] = _on_dask(peer, what, source)
            else:
                self.by_role[role] = StreamOnDask(peer, what, source, window)
        self._named = {name: _on_dask(peer, f"datasets[{name!r}]", source) for name, source in (named or {}).items()}
        self._opened: dict[str, asyncio.Task[DataSetOnDask]] = {}  # what roles have asked for
        self._peer = peer

    async def described(self, progressed: Callable[[], None]) -> None:
        """Wait until all are computed; see :meth:`DataSetOnDask.described`."""
        await asyncio.gather(*(data.described(progressed) for data in self.by_role.values()))

    async def open(self, name: str, check: Callable[[str, Any], Source]) -> int:
        """Open a data set of the run, or a published one, of that name; the number under which it is known, from 1.

        Raises
        ------
        DataError
            There is no data set of that name, or it is none of ours.
        """
        # One task for all roles that ask, perhaps at the same time. After a failure the name is looked up anew, since
        # the set may be published later; it keeps its place in the dict, and with it its number.
        if name not in self._opened or _has_failed(self._opened[name]):
            self._opened[name] = asyncio.ensure_future(self._open(name, check))
        await asyncio.shield(self._opened[name])
        return 1 + list(self._opened).index(name)

    async def _open(self, name: str, check: Callable[[str, Any], Source]) -> DataSetOnDask:
        if (own := self._named.get(name)) is not None:
            await own.described(lambda: None)
            return own
        published = await published_value(self._peer, name)
        try:
            source = segments_in(published) or check(f"data set {name!r}", published)
        except (TypeError, ValueError) as error:
            raise DataError(str(error)) from error
        data = _on_dask(self._peer, f"data set {name!r}", source)
        try:
            await data.described(lambda: None)
        except BaseException:
            await data.cancel()
            raise
        return data

    def left(self, role: str, rank: int) -> None:
        """Note that a rank is gone, or has returned: nothing is computed for it any more."""
        if isinstance(data := self.by_role.get(role), StreamOnDask):
            data.left(role, rank)

    def data_set(self, number: int) -> DataSetOnDask:
        """Return the published data set of that number."""
        return list(self._opened.values())[number - 1].result()

    def own_keys(self) -> list[Any]:
        """Return the keys of what is computed for this run alone."""
        return [key for data in {*self.by_role.values(), *self._named.values()} for key in data.own_keys()]

    def num_rows(self) -> dict[tuple[str, int], int]:
        """Return rows of each data set, by role and number.

        The role's own is 0, a published one has no role in front.
        """
        rows = {(role, 0): data.num_rows for role, data in self.by_role.items()}
        for number, opening in enumerate(self._opened.values(), 1):
            if opening.done() and not _has_failed(opening):
                rows["", number] = opening.result().num_rows
        return rows

    def num_skipped(self) -> dict[str, int]:
        """Rows that were left out of the data of each role, and of data sets by name, since they can't be decoded."""
        described = {f"data[{role!r}]": data for role, data in self.by_role.items()}
        described |= {f"data set {name!r}": data for name, data in self._named.items() if name in self._opened}
        return {
            what: data.num_listed - data.num_rows
            for what, data in described.items()
            if data.num_rows and data.num_listed is not None
        }

    async def cancel(self) -> None:
        """Stop the work of all of them, also of those that are just being opened."""
        for opening in self._opened.values():
            opening.cancel()  # no effect on one that is open
        opened = await asyncio.gather(*self._opened.values(), return_exceptions=True)
        published = [data for data in opened if isinstance(data, DataSetOnDask)]
        for data in {*self.by_role.values(), *self._named.values(), *published}:
            await data.cancel()


def _has_failed(opening: asyncio.Task[DataSetOnDask]) -> bool:
    return opening.done() and (opening.cancelled() or opening.exception() is not None)


def _on_dask(peer: Peer, what: str, source: Source | SharedSegments) -> DataSetOnDask:
    return SharedOnDask(peer, what, source) if isinstance(source, SharedSegments) else DataSetOnDask(peer, what, source)
