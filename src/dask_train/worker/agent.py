"""The agent: starts, feeds, watches and ends the role processes of one run on one Dask worker.

It lives in the thread of a seceded Dask task, on an event loop of its own, so that neither a busy Dask worker nor a
flood of reports holds up the other. It decides nothing: commands come from the run's driver, events go to it.
"""

from __future__ import annotations

import asyncio
import copy
import os
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

from dask.system import CPU_COUNT
from distributed import Worker

from dask_train.cluster.certificates import certificates
from dask_train.cluster.devices import device_environment
from dask_train.cluster.peer import Peer
from dask_train.data import state_memory
from dask_train.errors import DaskTrainError, DataError, StalledError
from dask_train.frameworks.base import RoleInfo
from dask_train.process.devices import DeviceUse
from dask_train.process.messages import (
    Accounted,
    Answer,
    BeginRole,
    CallFunction,
    DataSetFound,
    DataSetPlaces,
    Diagnose,
    GroupComputed,
    KeptFiles,
    Progress,
    Question,
    Reported,
    RowsWanted,
    StreamLeft,
    Value,
    from_plain,
    to_plain,
)
from dask_train.process.role_child import RoleChild
from dask_train.run.messages import (
    DataFailed,
    DataProgressed,
    Ended,
    Exited,
    Failed,
    Go,
    Kill,
    Load,
    Loaded,
    Message,
    Met,
    PeerLost,
    Resize,
    RoleProcess,
    StartProcess,
    Stop,
)
from dask_train.worker.brief import Brief
from dask_train.worker.mail import BUNDLE_S, Mail
from dask_train.worker.role_data import RoleData
from dask_train.worker.templates import TemplateProcesses

# Events that wait for the scheduler; with more, the role processes are not read until some have gone.
MAX_WAITING = 1000
# What is kept of a role's output with the scheduler, in bytes.
LAST_OUTPUT_BYTES = 64_000
# How often output is taken over, and the Dask worker's health is looked at.
LOOK_S = 0.2
# How long the last words about roles may take that are ended since their Dask worker leaves.
LAST_WORDS_S = 2.0

Key = tuple[str, int]
Q = TypeVar("Q", bound=Question)


class Agent:
    """The agent of a run on one Dask worker.

    Attributes
    ----------
    gone
        Done when it has ended, and is no longer in the :func:`registry`; for any thread.
    has_told
        Whether it has told of all its roles that they are gone, since its Dask worker leaves the cluster.
    """

    def __init__(self, worker: Worker, brief: Brief, name: str) -> None:
        self.worker, self.brief, self.name = worker, brief, name
        self.peer = Peer(worker, brief.data_timeout_s)
        self.children: dict[Key, RoleChild] = {}
        self._old: list[RoleChild] = []  # killed for the next attempt of their role, not gone yet
        self._data = RoleData(self.peer, self.on_worker_loop, brief.data_timeout_s)
        self._kept = KeptFiles(descriptors=state_memory.new_files()) if brief.keeps_state else None
        self._mail = Mail(self.peer, brief.run, name, self.on_worker_loop, self._worker_is_closing)
        self.gone: Future[None] = Future()
        self.gone.set_running_or_notify_cancel()  # its waiters can't cancel it
        self._over = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._starting: set[asyncio.Task[None]] = set()  # never cancelled: a process must not start unseen
        self._failure: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_leaving = asyncio.Event()
        self.has_told = False

    async def run(self) -> None:
        """Serve until the run is over, the Dask worker closes, or the scheduler is gone; then nothing is left."""
        self._loop = asyncio.get_running_loop()
        for work in (self._take_commands(), self._send_events(), self._look()):
            self._spawn(work)
        try:
            await self._over.wait()
        finally:
            await self._end()

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._failure = task.exception()
            self._over.set()

    async def on_worker_loop(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Return what a coroutine gives on the Dask worker's event loop."""
        loop = self.worker.loop.asyncio_loop
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))

    def _worker_is_closing(self) -> bool:
        return self.worker.status.name not in ("running", "paused")

    # The three things that it does all the time

    async def _take_commands(self) -> None:
        async for command in self._mail.commands():
            self._obey(*from_plain(command))
        self._over.set()

    async def _send_events(self) -> None:
        await self._mail.send(self._read_on)
        self._over.set()

    def _read_on(self) -> None:
        for child in self.children.values():
            if not child.done.is_set():
                child.resume()

    async def _look(self) -> None:
        while not self._worker_is_closing():
            for child in self.children.values():
                child.output.collect()
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._is_leaving.wait()
        await self._leave()
        self._over.set()

    def leave_soon(self) -> None:
        """Notice at once that the Dask worker closes; from any thread."""
        if self._loop is not None:
            with suppress(RuntimeError):  # it has ended
                self._loop.call_soon_threadsafe(self._is_leaving.set)

    async def _leave(self) -> None:
        """End the roles that can be replaced in place, and tell that they are gone: only then can they be."""
        self._is_leaving.set()
        if self.brief.leave_within_s is None:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(self.brief.leave_within_s):
                await self._all_are_gone()
        for child in self.children.values():
            child.kill()
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORDS_S):
                await self._all_are_gone()
                await self._mail.finish()
                self.has_told = True

    async def _all_are_gone(self) -> None:
        for child in list(self.children.values()):
            await child.done.wait()

    def _tell(self, child: RoleChild, message: Message, *, within_s: float = 0.0) -> None:
        event = to_plain(message, RoleProcess(child.role, child.rank, child.attempt))
        if self._mail.put(event, within_s=within_s) > MAX_WAITING:
            for each in self.children.values():
                each.pause()

    # Commands

    def _obey(self, command: Message, of: RoleProcess | None) -> None:
        if isinstance(command, DataSetPlaces):
            self._data.tell(command)
            return
        assert of is not None
        child = self.children.get(of.key)
        if isinstance(command, StartProcess):
            # Known at once: what comes with the next command may already be for it.
            fresh = RoleChild(*of, on_message=self._heard, on_exit=self._gone, joins=command.joins)
            self.children[of.key] = fresh
            starting = asyncio.create_task(self._start(fresh, command, child))
            self._starting.add(starting)
            starting.add_done_callback(self._starting.discard)
            starting.add_done_callback(self._done)
        elif child is not None and child.attempt == of.attempt:  # else it has been replaced
            _OBEYED[type(command)](self, child, command)

    async def _start(self, child: RoleChild, command: StartProcess, old: RoleChild | None) -> None:
        if old is not None and not old.done.is_set():
            self._old.append(old)
            old.kill()
        num_threads = max(1, CPU_COUNT // command.roles_on_host)
        use = DeviceUse(entry=command.device, num_sharing=command.num_sharing)
        environment = await asyncio.to_thread(device_environment, use)
        try:
            starting = TemplateProcesses.of(self.worker).start
            await child.start(
                self.brief.run, num_threads, self.worker.local_directory, starting, self.brief.preload, environment
            )
        except OSError as error:
            self._tell(child, Failed(error=f"{error}.", launching=True))
            return
        if child.done.is_set():
            return  # it was killed before there was a process
        host = "127.0.0.1" if self.worker.address.startswith("inproc://") else self.worker.ip
        child.tell(
            BeginRole(
                me=RoleInfo(
                    role=child.role,
                    rank=child.rank,
                    counts=command.counts or self.brief.counts,
                    training=self.brief.training,
                    host=host,
                    num_threads=num_threads,
                    tls=certificates(self.worker, "worker"),
                ),
                attempt=child.attempt,
                framework=self.brief.framework,
                function=self.brief.functions[child.role].lent(),
                letterbox=self.brief.letterbox,
                checkpoint=self.brief.checkpoint,
                settings=self.brief.settings,
                scratch=child.scratch,
                needs_device=self.brief.needs_devices and bool(command.device),
                joins=child.joins,
                data=self._kept,
                alone=command.alone,
            )
        )

    def _load(self, child: RoleChild, _: Load) -> None:
        self._spawn(self._hold(child))

    async def _hold(self, child: RoleChild) -> None:
        try:
            await self._data.hold(0, child.role, child.rank, self._progressed(child))
        except DaskTrainError as error:
            if not child.joins:
                self._tell(child, DataFailed(error=str(error)))
                return
            self._tell(child, Failed(error=str(error), launching=True))  # the others have their data
            child.kill()
        else:
            self._tell(child, Loaded())

    def _forward(self, child: RoleChild, command: Message) -> None:
        child.tell(command)

    def _progressed(self, child: RoleChild, question: Question | None = None) -> Callable[[], None]:
        """Return what tells that data of a role comes: the driver, and the process if it waits for an answer."""

        def tell() -> None:
            self._tell(child, DataProgressed())
            if question is not None:
                child.tell(Answer(question=question.question, to_come=True))

        return tell

    def _go(self, child: RoleChild, command: Go) -> None:
        data = self._data.mapped(0, child.role, child.rank)
        data_timeout_s = self.brief.data_timeout_s
        child.tell(
            CallFunction(peers=command.peers, timeout_s=command.timeout_s, data_timeout_s=data_timeout_s, data=data)
        )

    def _diagnose(self, child: RoleChild, _: Diagnose) -> None:
        self._spawn(self._picture(child))

    async def _picture(self, child: RoleChild) -> None:
        self._tell(child, await child.picture())

    # What role processes ask for

    def _data_set_found(self, child: RoleChild, message: DataSetFound) -> None:
        if message.error or message.to_come:
            child.tell(Answer(question=message.question, error=message.error, to_come=message.to_come))
        else:
            self._spawn(self._answer(child, message, self._open_data_set))

    def _group_computed(self, child: RoleChild, computed: GroupComputed) -> None:
        if computed.error or computed.to_come:
            child.tell(Answer(question=computed.question, error=computed.error, to_come=computed.to_come))
        else:
            self._spawn(self._answer(child, computed, self._open_group, ends_run=True))

    async def _answer(
        self,
        child: RoleChild,
        question: Q,
        find: Callable[[RoleChild, Q], Coroutine[Any, Any, Answer]],
        *,
        ends_run: bool = False,
    ) -> None:
        """Answer a role process with data; where it can't be had any more, the run may end for it."""
        if child.done.is_set():
            return  # no one would release what is opened for it
        try:
            child.tell(await find(child, question))
        except DaskTrainError as failure:
            reads = self.children.get((child.role, child.rank)) is child and not child.done.is_set()
            if ends_run and isinstance(failure, DataError) and reads:
                self._tell(child, DataFailed(error=str(failure)))
            number, stalled = question.question, isinstance(failure, StalledError)
            child.tell(Answer(question=number, error=str(failure), stalled=stalled))

    async def _open_data_set(self, child: RoleChild, message: DataSetFound) -> Answer:
        """Return a published data set that a role process has asked for."""
        await self._data.hold(message.number, child.role, child.rank, self._progressed(child, message))
        data = self._data.mapped(message.number, child.role, child.rank)
        return Answer(question=message.question, number=message.number, data=data)

    async def _open_group(self, child: RoleChild, computed: GroupComputed) -> Answer:
        """Return a group of a data set that is streamed, which the driver has computed."""
        data = await self._data.open_group(child.role, child.rank, computed, self._progressed(child, computed))
        return Answer(question=computed.question, data=data)

    async def _bring_rows(self, child: RoleChild, wanted: RowsWanted) -> Answer:
        """Return rows that a role process needs and that lie on other hosts."""
        columns = await self._data.rows(wanted.stream, child.role, child.rank, wanted.partition, wanted.row)
        return Answer(question=wanted.question, columns=columns)

    # What role processes say

    def _heard(self, child: RoleChild, message: Message) -> None:
        if self.children.get((child.role, child.rank)) is not child:
            return  # it has been replaced
        if isinstance(message, RowsWanted):
            self._spawn(self._answer(child, message, self._bring_rows, ends_run=True))
            return
        if isinstance(message, StreamLeft):
            self._data.leave(message.stream, child.role, child.rank)
        if isinstance(message, Ended | Failed):
            self._account(child)
        self._tell(child, message, within_s=self._may_wait_s(message))

    def _may_wait_s(self, message: Message) -> float:
        """Return how long a message may wait for others: most may not."""
        if isinstance(message, Progress):
            return self.brief.progress_every_s
        return BUNDLE_S if isinstance(message, Reported) else 0.0

    def _gone(self, child: RoleChild, cause: str) -> None:
        self._account(child)  # also of one that has been replaced
        if self.children.get((child.role, child.rank)) is child:
            self._data.gone(child.role, child.rank)
            leaves = self.brief.leave_within_s is not None and self._is_leaving.is_set()
            self._tell(child, Exited(cause="its Dask worker leaves the cluster." if leaves else cause, leaves=leaves))

    def _account(self, child: RoleChild) -> None:
        """Before a role's last word: which batches it took, and the end of its output."""
        self._keep_output(child)
        self._tell(child, Accounted(account=child.batches()), within_s=BUNDLE_S)

    def _keep_output(self, child: RoleChild) -> None:
        """Let the record have the end of it: with its last word, and again what it printed until its process ended."""
        end, data = child.output.bytes_since(0, LAST_OUTPUT_BYTES)
        self._mail.put_output((child.role, child.rank, child.attempt, end, data))

    # The end

    async def _end(self) -> None:
        """Kill what still runs, wait until it is gone, and close everything."""
        for task in list(self._tasks):
            task.cancel()
        children = [*self._old, *self.children.values()]
        for child in children:
            child.kill()
        with suppress(TimeoutError):
            async with asyncio.timeout(self.brief.stop_s):
                while self._starting:
                    await asyncio.wait(self._starting)
                for child in children:
                    await child.done.wait()
        await self._data.close()
        kept, self._kept = self._kept, None
        for descriptor in () if kept is None else kept.descriptors:
            os.close(descriptor)
        await self._mail.send_last_output()
        if self._failure is not None:
            raise copy.copy(self._failure)


_OBEYED: dict[type[Message], Callable[[Agent, RoleChild, Any], None]] = {
    Load: Agent._load,
    Go: Agent._go,
    Stop: Agent._forward,
    Value: Agent._forward,
    Met: Agent._forward,
    PeerLost: Agent._forward,
    Resize: Agent._forward,
    Kill: lambda _agent, child, _command: child.kill(),
    Diagnose: Agent._diagnose,
    DataSetFound: Agent._data_set_found,
    GroupComputed: Agent._group_computed,
}


def registry(worker: Worker) -> dict[str, Agent]:
    """Return the agents on a Dask worker, by run."""
    if not hasattr(worker, "train_agents"):
        worker.train_agents = {}
    agents: dict[str, Agent] = worker.train_agents
    return agents
