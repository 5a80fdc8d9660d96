"""A Dask worker as a member of a network: its port, its server, its queue, and how the queue is filled."""

from __future__ import annotations

import asyncio
import queue
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from distributed import Worker

from dask_train.cluster.peer import Peer
from dask_train.errors import ClosedError, DaskTrainError, DataError, RoleLostError
from dask_train.frameworks.environment import bypass_proxies
from dask_train.frameworks.ports import hold_port
from dask_train.roles import AddressBook
from dask_train.tensorflow_network.feed_queue import FeedQueue
from dask_train.worker.results import fetch_result


class Member:
    """One task of one network, kept on its Dask worker as ``worker.tensorflow_member``.

    Parameters
    ----------
    worker
        The Dask worker.
    network, job, index
        Which task of which network it is.
    queue_size
        How many batches its queue holds.
    default_timeout_s
        Timeout of a wait on the queue, in seconds.
    """

    def __init__(
        self, worker: Worker, network: str, job: str, index: int, *, queue_size: int, default_timeout_s: float
    ) -> None:
        self.worker = worker
        self.peer = Peer(worker)
        self.network, self.job, self.index = network, job, index
        self.server: Any = None
        self.host = "127.0.0.1" if worker.address.startswith("inproc://") else worker.ip
        self._room = asyncio.Event()
        loop = asyncio.get_running_loop()

        def room_again() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._room.set)

        self.queue = FeedQueue(queue_size, default_timeout_s, room_again)
        self._port_holder = hold_port()
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def address(self) -> str:
        """Where the server listens, or will: ``host:port``."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self._port_holder.getsockname()[1]}"

    async def start(self, start_server: Callable[..., Any], book: AddressBook) -> None:
        """Start the server in a thread of its own, so that Dask's event loop and task threads stay free."""
        loop = asyncio.get_running_loop()
        bypass_proxies(address for _, _, address in book.tasks())  # for as long as the process holds a server
        try:
            self.server = await loop.run_in_executor(None, start_server, book, self.job, self.index)
        finally:
            self._port_holder.close()
        self.worker.tensorflow_server = self.server
        self.worker.tensorflow_queue = self.queue
        self._tasks = [asyncio.create_task(self._watch()), asyncio.create_task(self._fill())]

    async def _watch(self) -> None:
        """Close the queue when the network ends."""
        failure: DaskTrainError | None = None
        try:
            state = "reserved"
            while state in ("reserved", "running"):
                question = {"network": self.network, "seen": state, "timeout_s": self.peer.poll_s}
                answer = await self.peer.ask("train_watch", **question)
                state = answer["state"]
            if answer["loss"]:
                failure = RoleLostError(answer["loss"], change="Close the network, and start it again.")
        except DaskTrainError as error:
            failure = error
        self.leave(failure or ClosedError(f"Network {self.network} was closed."))

    async def _fill(self) -> None:
        """Ask for batches whenever there is room, and put them into the queue."""
        try:
            while await self._have_room():
                question = {"network": self.network, "address": self.peer.id, "timeout_s": self.peer.poll_s}
                answer = await self.peer.ask("train_take", **question)
                if answer.get("batch"):
                    await self._deliver(**answer["batch"])
                elif answer["state"] not in ("reserved", "running"):
                    return  # _watch gets the same, and why
        except DaskTrainError as failure:
            self.leave(failure)

    async def _have_room(self) -> bool:
        """Wait until the queue has room, true, or is closed, false."""
        while not self.queue.closed:
            self._room.clear()
            if self.queue.has_room():
                return True
            await self._room.wait()
        return False

    async def _deliver(self, feed: str, key: Any, who_has: list[str]) -> None:
        error = ""
        try:
            batch = await fetch_result(self.worker, key, who_has)
            while await self._have_room():  # a role may have put something of its own into it meanwhile
                with suppress(queue.Full):
                    self.queue.put_nowait(batch)
                    break
            else:
                error = "the queue was closed"
        except ClosedError:
            error = "the queue was closed"
        except Exception as problem:
            error = str(problem) if isinstance(problem, DataError) else f"{type(problem).__name__}: {problem}"
        await self.peer.ask("train_delivered", feed=feed, key=key, error=error)

    def leave(self, failure: DaskTrainError | None = None) -> None:
        """End what runs for the network here; the server itself can't be stopped."""
        self._port_holder.close()
        self.queue.close(failure)
        current = asyncio.current_task()
        for task in self._tasks:
            if task is not current:
                task.cancel()


async def join(
    network: str, dask_spec: AddressBook, queue_size: int, default_timeout_s: float, dask_worker: Worker
) -> str:
    """Make the Dask worker a member and bind its port; where its server will listen, ``host:port``."""
    job, index = next((job, index) for job, index, address in dask_spec.tasks() if address == dask_worker.address)
    member = Member(dask_worker, network, job, index, queue_size=queue_size, default_timeout_s=default_timeout_s)
    dask_worker.tensorflow_member = member
    return member.address


async def start(network: str, start_server: Callable[..., Any], book: AddressBook, dask_worker: Worker) -> None:
    """Start the member's server, now that all addresses are known."""
    await member_of(dask_worker, network).start(start_server, book)


async def leave(network: str, dask_worker: Worker) -> None:
    """Undo :func:`join` on a Dask worker whose server was not started or stays."""
    member = getattr(dask_worker, "tensorflow_member", None)
    if member is not None and member.network == network:
        member.leave()


def member_of(worker: Worker, network: str) -> Member:
    """Return the Dask worker's membership in ``network``.

    Raises
    ------
    RoleLostError
        It is not, or no longer, a member: its process was restarted.
    """
    member: Member | None = getattr(worker, "tensorflow_member", None)
    if member is None or member.network != network:
        raise RoleLostError(
            f"The Dask worker {worker.address} is no member of network {network}.",
            "Its process was restarted, or the network was closed.",
            "Start the network again.",
        )
    return member
