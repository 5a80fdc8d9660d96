"""Data larger than memory: Dask computes it a group of partitions at a time, ahead of the roles, freed behind."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from distributed import Future, as_completed
from distributed.comm import get_address_host

from dask_train.cluster.described import cancel, check_computed, describe
from dask_train.cluster.parts import FINISH_COUNT, PART, Form, finish_segment
from dask_train.cluster.peer import Peer
from dask_train.data.columns import Column, same_columns
from dask_train.data.plan import EpochPlan
from dask_train.data.settle import settle
from dask_train.data.stream import Stream
from dask_train.data.table import Table
from dask_train.errors import DataError

if TYPE_CHECKING:
    from dask_train.collections.source import Source

# Groups that are computed beyond the one that the slowest rank is in.
GROUPS_AHEAD = 1
# Partitions of a group where the user has not said.
WINDOW = 8


def check_streaming(streaming: Any) -> int | None:
    """Partitions of a group; None where data is not streamed.

    Raises
    ------
    ValueError
        It is neither True, False nor a number of partitions.
    """
    if streaming is False or streaming is True:
        return WINDOW if streaming else None
    if not isinstance(streaming, int) or streaming < 1:
        raise ValueError(f"streaming is {streaming!r}; pass True, False, or how many partitions make a group.")
    return streaming


class StreamOnDask:
    """One data set that is computed as it is read; has the methods of ``DataSetOnDask``, and :meth:`group`.

    Parameters
    ----------
    peer
        The client.
    what
        How errors call it.
    source
        The data.
    window
        Partitions of a group.

    Attributes
    ----------
    keys
        None: a group's keys come with it.
    num_rows
        Rows of all partitions, once they are described.
    """

    def __init__(self, peer: Peer, what: str, source: Source, window: int) -> None:
        self._peer, self._what, self._window = peer, what, window
        self._form = Form(peer, source)
        self._parts = source.delayed_parts(PART, finish_segment())
        self.keys: list[Any] = []
        self.num_rows = 0
        self._lengths: np.ndarray | None = None
        self._counting: list[Future] = []
        if source.lengths is not None:
            self._lengths = np.array(source.lengths, np.int64)
        else:
            counted = source.delayed_parts(PART, FINISH_COUNT)
            self._counting = peer.dask_end.compute(counted, sync=False)
        self._columns: tuple[Column, ...] = ()
        self._tables: dict[str, bytes] = {}
        self._owners: dict[str, tuple[np.ndarray, list[str]]] = {}
        self._streams: dict[tuple[str, Stream], _Going] = {}

    async def described(self, progressed: Callable[[], None]) -> None:
        """Wait until the rows of each partition are known: at once, or after all have been computed once.

        Raises
        ------
        DataError
            A partition can't be computed.
        """
        async for future in as_completed(self._counting):
            await check_computed(future, self._what)
            progressed()
        if self._lengths is None:
            counts = await self._peer.dask_end._gather(self._counting)
            self._lengths, self._counting = np.array(counts, np.int64), []
        await self._form.schema(())
        self.num_rows = int(self._lengths.sum())
        if not self.num_rows:
            raise DataError(f"{self._what} has no rows.")

    def table(self, role: str, ranks: Sequence[str]) -> bytes:
        """The data set as a role's readers see it, pickled; see ``DataSetOnDask.table``."""
        if role not in self._tables:
            assert self._lengths is not None
            hosts: dict[str, int] = {}
            host_of_rank = [hosts.setdefault(get_address_host(address), len(hosts)) for address in ranks]
            home = np.full(len(self._lengths), -1)
            owner = settle(self._lengths, home, np.bincount(host_of_rank))
            self._owners[role] = (owner, list(hosts))
            table = Table(
                schema=self._form.known(()),
                lengths=self._lengths,
                owner=owner,
                host_of_rank=np.array(host_of_rank, np.int64),
                window=self._window,
            )
            self._tables[role] = pickle.dumps(table)
        return self._tables[role]

    async def group(
        self, role: str, rank: int, stream: Stream, group: int, needed_from: int
    ) -> tuple[bytes, list[tuple[int, Any]]]:
        """A group's schema, pickled, and the keys of its segments, once it is computed.

        Waits for ranks that are further behind than what may be computed ahead.

        Raises
        ------
        DataError
            A partition can't be computed, or has other columns than those before.
        """
        if (role, stream) not in self._streams:
            assert self._lengths is not None
            plan = EpochPlan(
                lengths=self._lengths,
                shuffle=stream.shuffle,
                seed=stream.seed,
                epoch=stream.epoch,
                window=self._window,
            )
            self._streams[role, stream] = _Going(plan.groups())
        going = self._streams[role, stream]
        going.reached(rank, needed_from)
        while not going.may_open(group):
            await going.changed()
        for number in going.wanted(group):
            if number not in going.computing:
                going.computing[number] = asyncio.ensure_future(self._compute(role, going.groups[number]))
        going.free_behind(self._release)
        futures = await asyncio.shield(going.computing[group])
        return pickle.dumps(self._form.known(self._columns)), [
            (number, future.key) for number, future in futures.items()
        ]

    async def _compute(self, role: str, partitions: np.ndarray) -> dict[int, Future]:
        owner, hosts = self._owners[role]
        workers = await self._workers_by_host()
        futures: dict[int, Future] = {}
        for host, name in enumerate(hosts):
            its = [number for number in partitions.tolist() if owner[number] == host]
            parts = [self._parts[number] for number in its]  # the same keys in every epoch: never twice at a time
            computed = self._peer.dask_end.compute(
                parts, sync=False, workers=workers.get(name), allow_other_workers=True, priority=10
            )
            futures.update(zip(its, computed, strict=True))
        try:
            async for future in as_completed(futures.values()):
                await check_computed(future, self._what)
            found, _ = await describe(self._peer, self._what, [future.key for future in futures.values()])
            known = [(1, self._columns)] if self._columns else []
            self._columns = same_columns([*known, *(found[future.key] for future in futures.values())])
        except ValueError as error:
            raise DataError(f"{self._what}: {error}.") from error
        return futures

    async def _workers_by_host(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for address in (await self._peer.dask_end.scheduler.identity(n_workers=-1))["workers"]:
            found.setdefault(get_address_host(address), []).append(address)
        return found

    def _release(self, computing: asyncio.Task[dict[int, Future]]) -> None:
        """Let Dask forget a group; what is still being computed of it is stopped."""
        self._peer.spawn(lambda: self._cancel(computing))

    async def _cancel(self, computing: asyncio.Task[dict[int, Future]]) -> None:
        computing.cancel()
        futures = (await asyncio.gather(computing, return_exceptions=True))[0]
        if isinstance(futures, dict):
            for future in futures.values():
                future.release()

    def left(self, role: str, rank: int, stream: Stream | None = None) -> None:
        """A rank needs no more groups of a stream, or of any."""
        for (of_role, each), going in list(self._streams.items()):
            if of_role == role and stream in (None, each):
                going.gone(rank)
                going.free_behind(self._release)
                if not going.ranks:
                    del self._streams[of_role, each]

    async def cancel(self) -> None:
        """Stop its computation, and forget it."""
        tasks = [task for going in self._streams.values() for task in going.computing.values()]
        await asyncio.gather(*map(self._cancel, tasks))
        await cancel(self._peer, self._counting)
        self._streams.clear()
        self._parts, self._counting = [], []


class _Going:
    """How far the ranks are in one epoch, and which groups are computed for it."""

    def __init__(self, groups: list[np.ndarray]) -> None:
        self.groups = groups
        self.ranks: dict[int, int] = {}  # the first group that each still needs
        self.computing: dict[int, asyncio.Task[dict[int, Future]]] = {}
        self._changed = asyncio.Event()

    def reached(self, rank: int, needed_from: int) -> None:
        """A rank needs no group before this one any more."""
        self.ranks[rank] = needed_from
        self._tell()

    def gone(self, rank: int) -> None:
        """A rank needs nothing more."""
        self.ranks.pop(rank, None)
        self._tell()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def changed(self) -> None:
        """Wait until a rank has moved on; the run's own deadlines end the wait."""
        await self._changed.wait()

    def may_open(self, group: int) -> bool:
        """Whether no rank is so far behind that it would have to be computed for it beyond the bound."""
        return group <= min(self.ranks.values(), default=group) + GROUPS_AHEAD

    def wanted(self, group: int) -> range:
        """The groups to compute for a rank that opens one."""
        return range(group, min(group + GROUPS_AHEAD + 1, len(self.groups)))

    def free_behind(self, release: Callable[[asyncio.Task[dict[int, Future]]], None]) -> None:
        """Let go of what no rank needs any more; of all where there is none left."""
        first = min(self.ranks.values(), default=len(self.groups))
        for number in [number for number in self.computing if number < first]:
            release(self.computing.pop(number))
