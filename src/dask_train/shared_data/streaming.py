"""Data larger than memory: Dask computes it a group of partitions at a time, ahead of the roles, freed behind."""

from __future__ import annotations

import asyncio
import itertools
import pickle
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from distributed import Future, as_completed
from distributed.comm import get_address_host

from dask_train.cluster.peer import Peer
from dask_train.cluster.submitted import preferring, submitted, with_rows_apart
from dask_train.data.columns import Column, check_same_partition, same_columns
from dask_train.data.plan import EpochPlan
from dask_train.data.stream import Stream
from dask_train.errors import ClosedError, DataError
from dask_train.scheduler.watched import Watched
from dask_train.shared_data.described import cancel, check_computed, describe
from dask_train.shared_data.parts import FINISH_COUNT, PART, BatchForm, finish_segment
from dask_train.shared_data.tables import table_for_ranks

if TYPE_CHECKING:
    from dask_train.collections.source import Source

# Groups beyond the slowest rank's own that the others may be in, and beyond what they are in that are computed.
# So there are 3 at a time in all; more where a rank begins later than the others, or again.
GROUPS_AHEAD = 1
# Partitions of a group where the user has not said.
WINDOW = 8

# Of a group, by partition number: its segment, and the addresses of the Dask workers that hold it.
Parts = dict[int, tuple[Future, list[str]]]


def check_streaming(streaming: Any) -> int | None:
    """Partitions of a group; None if data is not streamed.

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
        Empty: a group's keys come with it, and where they lie.
    where
        Empty, too.
    num_rows
        Rows of all partitions, once they are described.
    """

    def __init__(self, peer: Peer, what: str, source: Source, window: int) -> None:
        self._peer, self._what, self._window = peer, what, window
        self._form = BatchForm(peer, source)
        # Rows of the client are held for the stream: a partition has the same task in every epoch. Of both lists at
        # once: what all partitions take has the same key in their tasks.
        parts, for_all = source.delayed_parts(PART, finish_segment()), source.delayed_for_all(PART)
        apart, self._held = with_rows_apart(peer.dask_end, [*parts, *for_all])
        self._parts, for_all = apart[: len(parts)], apart[len(parts) :]
        self._for_all: list[Future] = peer.dask_end.compute(for_all) if for_all else []
        self.keys: list[Any] = []
        self.where: list[list[str]] = []
        self.num_rows, self.num_listed = 0, source.num_listed
        self._lengths: np.ndarray | None = None
        self._counting: list[Future] = []
        if source.lengths is not None:
            self._lengths = np.array(source.lengths, np.int64)
        else:
            counted = source.delayed_parts(PART, FINISH_COUNT)
            self._counting = submitted(peer.dask_end, counted)
        self._columns: tuple[Column, ...] = ()
        self._known: list[tuple[int, tuple[int, tuple[Column, ...]]]] = []  # the partition that has shown them
        self._tables: dict[str, bytes] = {}
        self._owners: dict[str, tuple[np.ndarray, list[str]]] = {}
        self._streams: dict[tuple[str, Stream], _Going] = {}  # by a stream's first epoch
        self._left: dict[tuple[str, int], set[Stream]] = {}  # what a rank needs no more

    async def described(self, progressed: Callable[[], None]) -> None:
        """Wait until the rows of each partition are known: at once, or after all have been computed once.

        Raises
        ------
        DataError
            A partition can't be computed.
        """
        async for future in as_completed(self._counting, loop=self._peer.loop):
            await check_computed(future, self._what)
            progressed()
        if self._lengths is None:
            counts = await self._peer.gather(self._counting)
            self._lengths, self._counting = np.array(counts, np.int64), []
        await self._form.schema(())
        self.num_rows = int(self._lengths.sum())
        if not self.num_rows:
            raise DataError(f"{self._what} has no rows.")

    def table(self, role: str, ranks: Sequence[str]) -> bytes:
        """Return the data set as a role's readers see it, pickled; see ``DataSetOnDask.table``."""
        if role not in self._tables:
            assert self._lengths is not None
            table, hosts = table_for_ranks(self._form.known(()), self._lengths, ranks, window=self._window)
            self._owners[role] = (table.owner, hosts)
            self._tables[role] = pickle.dumps(table)
        return self._tables[role]

    def own_keys(self) -> list[Any]:
        """Return the keys of what is computed for it, whether it is now or not."""
        return [*(part.key for part in self._parts), *(future.key for future in self._counting)]

    async def group(
        self, role: str, rank: int, stream: Stream, group: int, needed_from: int
    ) -> tuple[bytes, list[tuple[int, Any, list[str]]]]:
        """Return a group's schema, pickled, and its segments, once it is computed: number, key, holders.

        Waits for ranks that are further behind than what may be computed ahead.

        Raises
        ------
        DataError
            A partition can't be computed, has another number of rows than when they were counted or than its
            collection says, or has other columns than those before.
        ClosedError
            The rank has left the stream meanwhile.
        """
        going = self._going(role, stream)
        place = going.place(stream.epoch, group)
        request = (going.place(stream.epoch, needed_from), place)
        if stream not in self._left.get((role, rank), ()):  # it may ask ahead while it leaves
            going.reached(rank, request)
        while going.ranks.get(rank) is request and not going.may_open(place):
            await going.changed()
        if going.ranks.get(rank) is not request:
            raise ClosedError(f"{role} {rank} has left what it reads of {self._what}.")
        for number in going.wanted(place):
            if number not in going.computing:
                going.computing[number] = asyncio.ensure_future(self._compute(role, going.partitions(number)))
        going.free_behind(self._release)
        parts = await asyncio.shield(going.computing[place])
        segments = [(number, future.key, where) for number, (future, where) in parts.items()]
        return pickle.dumps(self._form.known(self._columns)), segments

    def _going(self, role: str, stream: Stream) -> _Going:
        first = stream._replace(epoch=0)
        if (role, first) not in self._streams:
            lengths = self._lengths
            assert lengths is not None

            def plan(epoch: int) -> EpochPlan:
                return EpochPlan(
                    lengths=lengths, shuffle=stream.shuffle, seed=stream.seed, epoch=epoch, window=self._window
                )

            self._streams[role, first] = _Going(plan)
        return self._streams[role, first]

    async def _compute(self, role: str, partitions: np.ndarray) -> Parts:
        owner, hosts = self._owners[role]
        present = list(await self._peer.workers())
        futures: dict[int, Future] = {}
        for host, name in enumerate(hosts):
            its = [number for number in partitions.tolist() if owner[number] == host]
            delayed = [self._parts[number] for number in its]  # the same keys in every epoch: never twice at a time
            near = [address for address in present if get_address_host(address) == name] or present
            computed = self._peer.dask_end.compute(delayed, sync=False, priority=10, **preferring(near, present))
            futures.update(zip(its, computed, strict=True))
        try:
            async for future in as_completed(futures.values(), loop=self._peer.loop):
                await check_computed(future, self._what)
            descriptions, where = await describe(self._peer, self._what, [future.key for future in futures.values()])
            for number, future in futures.items():
                self._check(number, *descriptions[future.key])
            parts = [*self._known, *((number, descriptions[future.key]) for number, future in futures.items())]
            self._columns = same_columns((part for _, part in parts), (number for number, _ in parts))
            self._known = [(number, part) for number, part in parts if part[0]][:1]
        except BaseException as error:
            for future in futures.values():
                future.release()
            if isinstance(error, ValueError):
                raise DataError(f"{self._what}: {error}.") from error
            raise
        return {number: (future, where[future.key]) for number, future in futures.items()}

    def _check(self, number: int, num_rows: int, columns: tuple[Column, ...]) -> None:
        """Check that a partition has as many rows as were counted, or as its collection says."""
        assert self._lengths is not None
        check_same_partition(self._what, number, (int(self._lengths[number]), columns), (num_rows, columns))

    def _release(self, computing: asyncio.Task[Parts]) -> None:
        """Let Dask forget a group; what is still being computed of it is stopped."""
        self._peer.spawn(lambda: self._cancel(computing))

    async def _cancel(self, computing: asyncio.Task[Parts]) -> None:
        computing.cancel()
        parts = (await asyncio.gather(computing, return_exceptions=True))[0]
        if isinstance(parts, dict):
            for future, _ in parts.values():
                future.release()

    def left(self, role: str, rank: int, stream: Stream | None = None) -> None:
        """Note that a rank needs no more groups of a stream, or of any: it has ended, and may begin anew."""
        if stream is None:
            self._left.pop((role, rank), None)
        else:
            self._left.setdefault((role, rank), set()).add(stream)
        for (of_role, first), going in list(self._streams.items()):
            if of_role == role and (stream is None or stream._replace(epoch=0) == first):
                going.gone(rank)
                going.free_behind(self._release)
                if not going.ranks:
                    del self._streams[of_role, first]

    async def cancel(self) -> None:
        """Stop its computation, and forget it."""
        tasks = [task for going in self._streams.values() for task in going.computing.values()]
        await asyncio.gather(*map(self._cancel, tasks))
        await self._form.cancel()
        await cancel(self._peer, self._counting)
        for future in self._for_all:  # Dask's scheduler fails to cancel what tasks depend on that no client wants
            future.release()
        self._streams.clear()
        self._parts, self._held, self._counting, self._for_all = [], None, [], []


class _Going:
    """How far the ranks are in the epochs of one call of ``batches()``, and which groups are computed for them.

    A group's place is counted on over the epochs, so that a rank that is an epoch ahead waits, too.
    """

    def __init__(self, plan: Callable[[int], EpochPlan]) -> None:
        self._plan = plan
        self._lengths = plan(0).lengths
        self._num_groups = len(plan(0).groups())
        self._epochs: dict[int, list[np.ndarray]] = {}
        self.ranks: dict[int, tuple[int, int]] = {}  # the first place that each still needs, and the last it asked for
        self.computing: dict[int, asyncio.Task[Parts]] = {}
        self._news = Watched()

    def place(self, epoch: int, group: int) -> int:
        """Return where a group comes."""
        return epoch * self._num_groups + group

    def partitions(self, place: int) -> np.ndarray:
        """Return the partitions of the group at a place."""
        epoch, group = divmod(place, self._num_groups)
        if epoch not in self._epochs:
            self._epochs = {**dict(list(self._epochs.items())[-1:]), epoch: self._plan(epoch).groups()}
        return self._epochs[epoch][group]

    def reached(self, rank: int, request: tuple[int, int]) -> None:
        """Note that a rank needs no group before a place any more, and asks for another."""
        self.ranks[rank] = request
        self._news.wake()

    def gone(self, rank: int) -> None:
        """Note that a rank needs nothing more."""
        self.ranks.pop(rank, None)
        self._news.wake()

    async def changed(self) -> None:
        """Wait until a rank has moved on; the run's own deadlines end the wait."""
        await self._news.changed.wait()

    def may_open(self, place: int) -> bool:
        """Return whether no rank is too far behind.

        One that asks for more at once, for a large batch, is where it asks.
        """
        return place <= min(max(needed_from + GROUPS_AHEAD, target) for needed_from, target in self.ranks.values())

    def wanted(self, place: int) -> list[int]:
        """Return what to compute for a rank that opens a group: that one, and later ones of its epoch with rows."""
        end = (place // self._num_groups + 1) * self._num_groups
        ahead = (number for number in range(place + 1, end) if self._lengths[self.partitions(number)].any())
        return [place, *itertools.islice(ahead, GROUPS_AHEAD)]

    def free_behind(self, release: Callable[[asyncio.Task[Parts]], None]) -> None:
        """Release what no rank needs any more; all if there is none left."""
        first = min((needed_from for needed_from, _ in self.ranks.values()), default=None)
        for number in [number for number in self.computing if first is None or number < first]:
            release(self.computing.pop(number))
