"""One way to ask the scheduler, from a client and from inside a task on a Dask worker."""

from __future__ import annotations

import asyncio
import pickle
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import Future as ThreadFuture
from concurrent.futures import wait
from types import TracebackType
from typing import Any

from distributed import Client, Future, Worker, get_worker
from distributed.comm import connect

from dask_train.cluster.clients import checked_client
from dask_train.cluster.on_loop import begin
from dask_train.compat.distributed import gather, scatter
from dask_train.config import Deadlines
from dask_train.errors import RoleLostError

# A long poll of the scheduler ends after this many seconds with "nothing new" and is asked again, so that a
# connection that died without a word is noticed.
POLL_S = 5.0
# And after this part of what the scheduler may take to answer: one that hangs is noticed that much later.
POLL_PART = 0.05
# The share of a deadline that one look takes: what a process slept during it is not counted.
_LOOK_PART = 0.1
# How long a thread that waits for the loop sleeps at a time: some editors interrupt with no signal, which wakes no
# thread.
_WAKES_S = 0.5
# How long a Dask worker may take to answer a client that wants to give it something.
_REACHED_S = 3.0


class Peer:
    """A Dask client or a Dask worker as the place from which the scheduler is asked.

    Parameters
    ----------
    dask_end
        The client, or the worker, whose connection is used.
    answer_timeout_s
        How long the scheduler may take for an answer, in seconds; default: ``train.progress.timeout``. What a
        question itself asks to wait for comes on top.
    """

    def __init__(self, dask_end: Client | Worker, answer_timeout_s: float | None = None) -> None:
        self.dask_end = dask_end
        self.answer_timeout_s = (
            Deadlines.from_dask_config().progress_s if answer_timeout_s is None else answer_timeout_s
        )
        self.is_client = isinstance(dask_end, Client)
        self.id: str = dask_end.id if self.is_client else dask_end.address
        self.loop: Any = dask_end.loop

    @classmethod
    def here(cls, client: Client | None = None) -> Peer:
        """Return the given client, else the Dask worker whose task calls, else the default client.

        Raises
        ------
        ValueError
            There is no such client or Dask worker.
        TypeError
            What was given is no client.
        """
        if client is not None:
            return cls(checked_client(client))
        try:
            return cls(get_worker())
        except ValueError:
            pass
        try:
            return cls(Client.current())
        except ValueError as error:
            raise ValueError(
                "There is no Dask client here, and this is no task of a Dask worker. "
                "Make a distributed.Client first; in a thread that a task started, make what you need in the task."
            ) from error

    @property
    def poll_s(self) -> float:
        """How long a long poll of the scheduler may last, in seconds."""
        return min(POLL_S, POLL_PART * self.answer_timeout_s)

    @property
    def asynchronous(self) -> bool:
        """Whether calls must return awaitables."""
        return bool(self.is_client and self.dask_end.asynchronous)

    @property
    def is_closed(self) -> bool:
        """Return whether this is a client that was closed, whose event loop may have ended."""
        return self.is_client and self.dask_end.status == "closed"

    async def call(self, handler: str, **message: Any) -> Any:
        """Call a handler of the scheduler.

        Raises
        ------
        RoleLostError
            The scheduler does not answer.
        """
        self._check()
        if self.is_client and self.dask_end.status == "connecting":  # all that it had there ended with the connection
            raise self._unconnected(handler)
        limit_s = self.answer_timeout_s + message.get("timeout_s", 0.0)
        try:
            return await answered_within(getattr(self.dask_end.scheduler, handler)(**message), limit_s)
        except TimeoutError as error:
            raise RoleLostError(
                f"The Dask scheduler did not answer {handler} to {self.id} within {limit_s:g} s.",
                "It hangs, is busy, or cannot be reached any more.",
                "Look at its process and its log, or raise train.progress.timeout.",
            ) from error
        except (OSError, RuntimeError) as error:
            if isinstance(error, RuntimeError) and getattr(self.dask_end, "status", "") not in ("closing", "closed"):
                raise  # not that the connections of a client that closes are gone, but an error of the handler's
            raise RoleLostError(
                f"The Dask scheduler did not answer {handler} to {self.id}.",
                "It has been closed, or its connection is gone.",
                "Start a new cluster, or connect again.",
            ) from error

    def _unconnected(self, what: str) -> RoleLostError:
        return RoleLostError(
            f"The Dask scheduler did not answer {what} to {self.id}.",
            "The client has lost its connection: the scheduler was closed or killed, or its host is cut off.",
            "Start a new cluster, or connect again.",
        )

    def _check(self) -> None:
        if self.dask_end.scheduler is None:
            raise RoleLostError(f"The Dask client {self.id} is closed.", change="Make a new client.")

    async def ask(self, handler: str, **message: Any) -> dict[str, Any]:
        """Call a handler of our scheduler plug-in.

        Raises
        ------
        RoleLostError
            The scheduler does not answer, or has no such plug-in.
        """
        answer = await self.call(handler, **message)
        if answer is None:  # what Dask answers where there is no such handler
            raise RoleLostError(
                f"The Dask scheduler knows no {handler}.",
                "It was started again since this was opened, and its runs, networks and boards are gone.",
                "Open it again.",
            )
        assert isinstance(answer, dict)
        return answer

    async def workers(self) -> dict[str, dict[str, Any]]:
        """Return what the scheduler says of each Dask worker, by its address.

        ``Client.scheduler_info(n_workers=-1)`` is not asked: Dask brings what it returns up to date every 2 s without
        any workers, also between its question and its answer.

        Raises
        ------
        RoleLostError
            The scheduler does not answer.
        """
        workers: dict[str, dict[str, Any]] = (await self.call("identity", n_workers=-1))["workers"]
        return workers

    async def on_workers(
        self, function: Any, *args: Any, workers: list[str] | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        """Run ``function`` on the event loops of Dask workers, all of them where ``workers`` is None; from a client.

        Raises
        ------
        RoleLostError
            The scheduler does not answer.
        Exception
            What the function, or the way to one of the Dask workers, raised; with ``on_error="ignore"`` none.
        """
        self._check()
        asking = self.dask_end.run(function, *args, workers=workers, **kwargs)
        try:
            answers: dict[str, Any] = await self.while_it_answers(asking)
        except OSError as error:
            if self.dask_end.status == "running":
                raise  # the way to one of the Dask workers
            raise self._unconnected("a message for Dask workers") from error
        return answers

    async def while_it_answers(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Return what a coroutine gives that goes through the scheduler, for as long as that answers at all.

        Raises
        ------
        RoleLostError
            The scheduler does not answer.
        """
        doing = asyncio.ensure_future(work)
        try:
            while not (await asyncio.wait([doing], timeout=self.poll_s))[0]:
                await self.call("identity", n_workers=1)
            return doing.result()
        finally:
            doing.cancel()

    async def put(self, key: str, value: Any, *, address: str | None = None, num_copies: int = 1) -> Future:
        """Put a value into the memory of Dask workers, from a client; it stays while the future is referenced.

        It goes there straight, where Dask workers can be reached from here, else through the scheduler. A Dask worker
        in this process gets a copy, as others do.

        Parameters
        ----------
        key
            Its name in Dask.
        address
            The Dask worker to put it on; any where it is None.
        num_copies
            On how many of them it lies at first.

        Raises
        ------
        RoleLostError
            The scheduler does not answer.
        """
        some = [address] if address else list((await self.call("identity", n_workers=1))["workers"])
        if any(each.startswith("inproc://") for each in some):
            value = copied(value)  # else it would hold the caller's own arrays, and change with them
        direct = bool(some) and await self._reaches(some[0])
        broadcast = num_copies if num_copies > 1 else False
        workers = [address] if address else None
        putting = scatter(self.dask_end, {key: value}, workers=workers, direct=direct, broadcast=broadcast)
        futures = await self.while_it_answers(putting)
        future: Future = futures[key]
        return future

    async def num_copies(self, key: str) -> int:
        """Return how many Dask workers hold a value."""
        return len((await self.call("who_has", keys=[key]))[key])

    async def gather(self, futures: Sequence[Future]) -> list[Any]:
        """Results of Dask in this process, from a client; of a lost one the error is that of Dask."""
        results: list[Any] = await self.while_it_answers(gather(self.dask_end, futures))
        return results

    async def cancel(self, futures: Sequence[Future]) -> None:
        """Cancel results of Dask, from a client, even if others wait for them."""
        await self.dask_end.cancel(list(futures))
        for future in futures:  # else get_dataset() asks the scheduler for their keys, and it warns
            future.release()

    async def on_scheduler(self, function: Any, *args: Any) -> Any:
        """Run ``function`` in the scheduler, from a client."""
        return await self.dask_end.run_on_scheduler(function, *args)

    async def _reaches(self, address: str) -> bool:
        """Return whether a Dask worker answers this client, which may see only the scheduler through a gateway."""
        try:
            comm = await connect(address, timeout=_REACHED_S, **self.dask_end.connection_args)
        except OSError:
            return False
        await comm.close()
        return True

    def run(self, function: Callable[..., Coroutine[Any, Any, Any]], *args: Any, **kwargs: Any) -> Any:
        """Return the result of a coroutine on this end's event loop; an awaitable where calls are asynchronous."""
        if self.asynchronous:
            return function(*args, **kwargs)
        # Not by Dask's own sync: a Ctrl-C that comes before what it is to cancel has begun is logged as an error there.
        awaited: ThreadFuture[Any] = ThreadFuture()
        try:
            begin(self.loop.asyncio_loop, awaited, function, *args, **kwargs)
            while not awaited.done():
                wait([awaited], timeout=_WAKES_S)
            return awaited.result()
        except BaseException as error:
            awaited.cancel()
            # This frame and those of the wait refer to what was raised: without them nothing of the run outlives it.
            error.__traceback__ = _below_the_wait(error.__traceback__)
            raise

    def spawn(self, function: Callable[[], Awaitable[None]]) -> None:
        """Run a coroutine function in the background of this end's event loop."""

        def start() -> None:
            task = asyncio.ensure_future(function())
            _background.add(task)
            task.add_done_callback(_background.discard)

        self.loop.add_callback(start)


def copied(value: Any) -> Any:
    """Return a value as another process would get it: a copy that shares no memory with it."""
    if isinstance(value, bytes):
        return value
    buffers: list[pickle.PickleBuffer] = []
    data = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    return pickle.loads(data, buffers=[bytearray(each.raw()) for each in buffers])  # noqa: S301 - our own bytes


async def answered_within(work: Coroutine[Any, Any, Any], limit_s: float) -> Any:
    """Await a coroutine for that many seconds in which this process runs.

    A process that was stopped (SIGSTOP, a paused virtual machine) finds its timers over when it resumes, and
    the answer, which has come long ago, still unread.

    Raises
    ------
    TimeoutError
        It has not ended by then.
    """
    doing, left_s, look_s = asyncio.ensure_future(work), limit_s, max(_LOOK_PART * limit_s, 0.01)
    try:
        while not doing.done():
            if left_s <= 0:
                raise TimeoutError
            began, within_s = time.monotonic(), min(look_s, left_s)
            await asyncio.wait([doing], timeout=within_s)
            left_s -= min(time.monotonic() - began, within_s)
        return doing.result()
    finally:
        if not doing.done():
            doing.cancel()
            await asyncio.gather(doing, return_exceptions=True)


def _below_the_wait(trace: TracebackType | None) -> TracebackType | None:
    """Return a traceback of :meth:`Peer.run` without the frames that carry the call to the event loop."""
    trace = trace and trace.tb_next
    while trace is not None and trace.tb_frame.f_globals["__name__"].startswith("concurrent.futures"):
        trace = trace.tb_next
    return trace


# The event loop keeps only weak references to tasks: https://docs.python.org/3/library/asyncio-task.html
_background: set[asyncio.Future[None]] = set()
