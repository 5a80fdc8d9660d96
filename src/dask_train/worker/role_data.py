"""The data of a run on one Dask worker: what its role processes map, and what is brought to them row by row."""

from __future__ import annotations

import asyncio
import dataclasses
import pickle
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from distributed.protocol.pickle import dumps

from dask_train.cluster.peer import Peer
from dask_train.data.stream import Stream
from dask_train.data.table import Table
from dask_train.errors import ClosedError, DaskTrainError, DataError
from dask_train.process.messages import DataSetPlaces, GroupComputed, Mapped
from dask_train.worker.holding import Holding
from dask_train.worker.results import fetch_result


class RoleData:
    """The data of the roles of an agent; lives on an agent's event loop.

    Parameters
    ----------
    peer
        The Dask worker.
    on_worker_loop
        Awaits a coroutine on the Dask worker's event loop.
    data_timeout_s
        Timeout of a wait for data, in seconds; it starts anew when data comes.
    """

    def __init__(
        self,
        peer: Peer,
        on_worker_loop: Callable[[Coroutine[Any, Any, Any]], Coroutine[Any, Any, Any]],
        data_timeout_s: float,
    ) -> None:
        self._around = _Around(peer, on_worker_loop)
        self._data_timeout_s = data_timeout_s
        self._tables: dict[tuple[int, str], tuple[Table, list[tuple[Any, Sequence[str]]]]] = {}
        self._holdings: dict[tuple[int, str, int, bool], _SharedHolding] = {}
        self._holding_of: dict[tuple[int, str, int], _SharedHolding] = {}  # by data set, role and rank
        self._groups: dict[tuple[str, int], dict[Stream, dict[int, Holding]]] = {}
        self._left: dict[tuple[str, int], set[Stream]] = {}  # what a rank needs no more

    def tell(self, places: DataSetPlaces) -> None:
        """Report what a data set is; a role's own is number 0. One that is streamed has no keys yet."""
        known = (pickle.loads(places.table), list(zip(places.keys, places.where, strict=True)))  # noqa: S301 - from the client
        self._tables.setdefault((places.number, places.role), known)

    async def hold(self, dataset: int, role: str, rank: int, progressed: Callable[[], None]) -> None:
        """Open what a rank maps; ranks of one host share it.

        For a rank that has joined later, partitions on other hosts are not copied: :meth:`rows` fetches their rows.

        Raises
        ------
        DataError
            It can't be had.
        """
        if dataset == 0:  # a process begins; one that was killed before may have groups open
            self.gone(role, rank)
        table, holders = self._tables[dataset, role]
        key = self._shared_key(dataset, role, rank)
        shared = self._holdings.get(key)
        if shared is not None and shared.has_failed():
            shared.holding.close()  # a role that begins anew may find what was missing
            shared = None
        if shared is None:
            keys = {number: key for number, (key, _) in enumerate(holders)}
            shared = _SharedHolding(Holding(table, keys, self._around, dict(holders)))
            partitions = [] if table.window else np.flatnonzero(table.owner == table.host_of(rank)).tolist()
            opening = shared.holding.hold(partitions, shared.progressed, self._data_timeout_s, copies=not key[3])
            shared.opening = asyncio.create_task(opening)
            self._holdings[key] = shared
        self._holding_of[dataset, role, rank] = shared
        await shared.opened(progressed)

    def _shared_key(self, dataset: int, role: str, rank: int) -> tuple[int, str, int, bool]:
        """Return the key of what a rank maps, which ranks of one host share.

        The last part says whether partitions on other hosts are left out, as for ranks that have joined later. These
        share with ranks of the first rank's host where this Dask worker has such ranks.
        """
        table, _ = self._tables[dataset, role]
        host = table.host_of(rank)
        return dataset, role, host, table.has_joined(rank) and (dataset, role, host, False) not in self._holdings

    def mapped(self, dataset: int, role: str, rank: int) -> Mapped | None:
        """Return what a role process needs to map it; None if the role has no data."""
        if (dataset, role) not in self._tables:
            return None
        table, _ = self._tables[dataset, role]
        holding = self._holding_of[dataset, role, rank].holding
        return Mapped(table=table, held=holding.held, descriptors=holding.descriptors)

    async def open_group(self, role: str, rank: int, computed: GroupComputed, progressed: Callable[[], None]) -> Mapped:
        """Open a group of a data set that is streamed, for one rank; what its role process needs to map it.

        Raises
        ------
        DataError
            It can't be had.
        ClosedError
            The rank has left the stream meanwhile.
        """
        stream, keys = computed.stream, {number: key for number, key, _ in computed.parts}
        table, _ = self._tables[stream.dataset, role]
        table = dataclasses.replace(table, schema=pickle.loads(computed.schema))  # noqa: S301 - from the client
        if stream in self._left.get((role, rank), ()):  # it has asked ahead while it left
            raise ClosedError(f"{role} {rank} has left what it reads.")
        groups = self._groups.setdefault((role, rank), {}).setdefault(stream, {})
        for old in [number for number in groups if number < computed.needed_from]:
            groups.pop(old).close()
        holding = Holding(table, keys, self._around, {key: where for _, key, where in computed.parts})
        mine = [number for number in keys if table.owner[number] == table.host_of(rank)]
        try:
            await holding.hold(mine, progressed, self._data_timeout_s)
            self._check_reads(stream, role, rank, groups)
        except BaseException as error:
            holding.close()
            if isinstance(error, DataError):  # what a rank has left is released, and can't be had
                self._check_reads(stream, role, rank, groups)
            raise
        if (before := groups.pop(computed.group, None)) is not None:  # it has asked again
            before.close()
        groups[computed.group] = holding
        return Mapped(table=table, held=holding.held, descriptors=holding.descriptors)

    def _check_reads(self, stream: Stream, role: str, rank: int, groups: dict[int, Holding]) -> None:
        """Raise a ClosedError if these are no longer the groups that a rank reads of a stream."""
        if self._groups.get((role, rank), {}).get(stream) is not groups:
            raise ClosedError(f"{role} {rank} has left what it reads.")

    def leave(self, stream: Stream, role: str, rank: int) -> None:
        """Let go of the groups that a rank has open."""
        self._left.setdefault((role, rank), set()).add(stream)
        for holding in self._groups.get((role, rank), {}).pop(stream, {}).values():
            holding.close()

    def gone(self, role: str, rank: int) -> None:
        """Let go of what a process had open that has ended."""
        self._left.pop((role, rank), None)
        for groups in self._groups.pop((role, rank), {}).values():
            for holding in groups.values():
                holding.close()

    async def rows(
        self, stream: Stream, role: str, rank: int, partition: np.ndarray, row: np.ndarray
    ) -> list[np.ndarray]:
        """Return rows from other hosts; see :meth:`Holding.rows`.

        Raises
        ------
        ClosedError
            The rank has left the stream, or has no such group of it open.
        """
        table, _ = self._tables[stream.dataset, role]
        if not table.window:
            holding = self._holding_of[stream.dataset, role, rank].holding
            return await holding.rows(partition, row, self._data_timeout_s)
        columns: list[np.ndarray] = []
        missing = np.ones(len(partition), bool)
        groups = self._groups.get((role, rank), {}).get(stream, {})
        for holding in list(groups.values()):
            its = np.flatnonzero(holding.knows(partition))
            if len(its):
                try:
                    arrays = await holding.rows(partition[its], row[its], self._data_timeout_s)
                except DataError:
                    self._check_reads(stream, role, rank, groups)
                    raise
                columns = columns or [np.empty((len(row), *each.shape[1:]), each.dtype) for each in arrays]
                for column, rows in zip(columns, arrays, strict=True):
                    column[its] = rows
                missing[its] = False
        if missing.any():  # it has asked ahead while it left
            raise ClosedError(f"{role} {rank} has left what it reads.")
        return columns

    async def close(self) -> None:
        """Let go of everything."""
        for shared in self._holdings.values():
            shared.opening.cancel()
            await asyncio.gather(shared.opening, return_exceptions=True)  # its waiters have the error
            shared.holding.close()
        for of_rank in self._groups.values():
            for groups in of_rank.values():
                for holding in groups.values():
                    holding.close()
        self._holdings.clear()
        self._holding_of.clear()
        self._groups.clear()


@dataclass
class _SharedHolding:
    """What ranks of one host share: partitions that are opened once, while all of them wait.

    Attributes
    ----------
    opening
        Opens them.
    waiting
        Called when some partitions have come; one function for each rank that waits.
    """

    holding: Holding
    opening: asyncio.Task[None] = field(init=False)
    waiting: list[Callable[[], None]] = field(default_factory=list)

    def progressed(self) -> None:
        for each in self.waiting:
            each()

    def has_failed(self) -> bool:
        return self.opening.done() and (self.opening.cancelled() or self.opening.exception() is not None)

    async def opened(self, progressed: Callable[[], None]) -> None:
        """Wait until they are open, also for others: one that goes leaves it to them."""
        self.waiting.append(progressed)
        try:
            await asyncio.shield(self.opening)
        finally:
            self.waiting.remove(progressed)


class _Around:
    """The Dask workers around this one, as :class:`~dask_train.worker.holding.Neighbours`."""

    def __init__(
        self, peer: Peer, on_worker_loop: Callable[[Coroutine[Any, Any, Any]], Coroutine[Any, Any, Any]]
    ) -> None:
        self._peer, self._on_worker_loop = peer, on_worker_loop
        self.address: str = peer.dask_end.address

    async def where(self, keys: list[Any], wait_s: float = 0.0) -> dict[str, Any]:
        return dict(await self._on_worker_loop(self._peer.ask("train_run_who_has", keys=keys, timeout_s=wait_s)))

    async def fetch(self, key: Any, addresses: list[str]) -> Any:
        return await self._on_worker_loop(fetch_result(self._peer.dask_end, key, addresses))

    async def ask(self, address: str, function: Callable[..., Any], *args: Any) -> Any:
        return await self._on_worker_loop(self._ask(address, function, args))

    async def _ask(self, address: str, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        worker = self._peer.dask_end
        if address == self.address:
            return function(*args, dask_worker=worker)
        answer = await worker.rpc(address).run(function=dumps(function), args=dumps(args))
        if answer["status"] != "OK":
            raise DaskTrainError(
                f"Dask worker {address} could not tell of its segments: {answer.get('exception-text')}."
            )
        return answer["result"]
