"""The agent: starts, feeds, watches and ends the role processes of one run on one Dask worker.

It lives in the thread of a seceded Dask task, on an event loop of its own, so that neither a busy Dask worker nor a
flood of reports holds up the other. It decides nothing: commands come from the run's driver, events go to it.
"""

from __future__ import annotations

import asyncio
import copy
import time
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from dask.system import CPU_COUNT
from distributed import Worker

from dask_train.cluster.on_worker.child import Child
from dask_train.cluster.on_worker.role_data import RoleData
from dask_train.cluster.peer import POLL_S, Peer
from dask_train.data.stream import Stream
from dask_train.errors import DaskTrainError, DataError, RoleLostError
from dask_train.frameworks.base import Me
from dask_train.roles import AddressBook

# Reports are collected for so long before they are sent on: 1,000 messages a second, sent singly, cost 13% of a
# scheduler's core, bundled 2%.
BUNDLE_S = 0.05
# Events that wait for the scheduler; with more, the role processes are not read until some have gone.
MAX_WAITING = 1000
# How long a scheduler that does not answer is asked again before the roles are ended.
PATIENCE_S = 2.0
# What is kept of a role's output with the scheduler, in bytes.
LAST_OUTPUT_BYTES = 64_000
# How often output is taken over, and the Dask worker's health is looked at.
LOOK_S = 0.2

Key = tuple[str, int]


@dataclass(frozen=True, kw_only=True)
class Brief:
    """What an agent has to know of its run from the start.

    Attributes
    ----------
    run
        The run's name.
    counts
        How many there are of each role.
    functions
        Pickled functions by role.
    framework
        The pickled adapter.
    checkpoint
        Where checkpoints are kept, if anywhere.
    patience_s
        How long a wait for data may take, in seconds.
    stop_s
        How long killed processes may take to be gone, in seconds.
    """

    run: str
    counts: dict[str, int]
    functions: dict[str, bytes] = field(repr=False)
    framework: bytes = field(repr=False)
    checkpoint: str | None
    patience_s: float
    stop_s: float


class Agent:
    """See the module."""

    def __init__(self, worker: Worker, brief: Brief, name: str) -> None:
        self.worker, self.brief, self.name = worker, brief, name
        self.peer = Peer(worker)
        self.children: dict[Key, Child] = {}
        self._old: list[Child] = []  # killed for the next attempt of their role, not gone yet
        self._data = RoleData(self.peer, self.on_worker_loop, brief.patience_s)
        self._events: list[dict[str, Any]] = []
        self._output: list[Any] = []
        self._news = asyncio.Event()
        self._urgent = asyncio.Event()
        self._over = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._starting: set[asyncio.Task[None]] = set()  # never cancelled: a process must not start unseen
        self._failure: BaseException | None = None

    async def run(self) -> None:
        """Serve until the run is over, the Dask worker closes, or the scheduler is gone; then nothing is left."""
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
        """What a coroutine gives on the Dask worker's event loop."""
        loop = self.worker.loop.asyncio_loop
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))

    async def _ask(self, handler: str, **message: Any) -> dict[str, Any]:
        """Ask the scheduler about this run; when it can't be reached for some seconds, the run is over here."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PATIENCE_S
        while True:
            try:
                answer = await self.on_worker_loop(
                    self.peer.ask(handler, run=self.brief.run, agent=self.name, **message)
                )
            except RoleLostError:
                if loop.time() > deadline or self._worker_is_closing():
                    return {"status": "gone"}
                await asyncio.sleep(LOOK_S)
            else:
                return dict(answer)

    def _worker_is_closing(self) -> bool:
        return self.worker.status.name not in ("running", "paused")

    # The three things that it does all the time

    async def _take_commands(self) -> None:
        seen = 0
        while True:
            answer = await self._ask("train_run_next", seen=seen, timeout_s=POLL_S)
            if answer["status"] != "OK":
                self._over.set()
                return
            for command in answer["commands"]:
                seen += 1
                self._obey(dict(command))

    async def _send_events(self) -> None:
        while True:
            await self._news.wait()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._urgent.wait(), BUNDLE_S)
            self._news.clear()
            self._urgent.clear()
            events, self._events = self._events, []
            output = list(self._output)
            answer = await self._ask("train_run_tell", events=events, output=output, timeout_s=POLL_S)
            del self._output[: len(output)]  # not before it has arrived: where this is cut short, the end sends it
            if answer["status"] != "OK":
                self._over.set()
                return
            for child in self.children.values():
                if not child.done.is_set():
                    child.resume()

    async def _look(self) -> None:
        while not self._worker_is_closing():
            for child in self.children.values():
                child.output.collect()
            await asyncio.sleep(LOOK_S)
        self._over.set()

    def _tell(self, child: Child, kind: str, *, urgent: bool = True, **event: Any) -> None:
        at = {"role": child.role, "rank": child.rank, "attempt": child.attempt, "time": time.time()}
        self._events.append({"kind": kind, **at, **event})
        self._news.set()
        if urgent:
            self._urgent.set()
        if len(self._events) > MAX_WAITING:
            for each in self.children.values():
                each.pause()

    # Commands

    def _obey(self, command: dict[str, Any]) -> None:
        if command["op"] == "table":
            self._data.tell(command["dataset"], command["role"], command["table"], list(command["keys"]))
            return
        key = (command["role"], command["rank"])
        child = self.children.get(key)
        op = command["op"]
        if op == "start":
            # Known at once: what comes with the next command may already be for it.
            fresh = Child(*key, command["attempt"], on_message=self._heard, on_exit=self._gone)
            self.children[key] = fresh
            starting = asyncio.create_task(self._start(fresh, command["roles_on_host"], child))
            self._starting.add(starting)
            starting.add_done_callback(self._starting.discard)
        elif child is None or child.attempt != command["attempt"]:
            return  # for a process that has been replaced
        elif op == "load":
            self._spawn(self._load(child))
        elif op == "go":
            self._go(child, command)
        elif op == "stop":
            child.tell("stop", reason=command["reason"])
        elif op == "kill":
            child.kill()
        elif op == "dataset":
            self._spawn(self._bring_dataset(child, command))
        elif op == "group":
            self._spawn(self._bring_group(child, command))
        elif op == "diagnose":
            self._spawn(self._diagnose(child))

    async def _start(self, child: Child, roles_on_host: int, old: Child | None) -> None:
        if old is not None and not old.done.is_set():
            self._old.append(old)
            old.kill()
        num_threads = max(1, CPU_COUNT // roles_on_host)
        try:
            await child.start(self.brief.run, num_threads, self.worker.local_directory, self.worker.loop.asyncio_loop)
        except OSError as error:
            child.discard()
            child.done.set()
            self._tell(child, "failed", error=f"{error}.", launching=True, traceback="", exception=b"", account=[])
            return
        host = "127.0.0.1" if self.worker.address.startswith("inproc://") else self.worker.ip
        child.tell(
            "start",
            me=Me(
                role=child.role,
                rank=child.rank,
                counts=self.brief.counts,
                host=host,
                num_threads=num_threads,
                tls=_tls(self.worker),
            ),
            attempt=child.attempt,
            framework=self.brief.framework,
            function=self.brief.functions[child.role],
            checkpoint=self.brief.checkpoint,
            scratch=child.scratch,
        )

    async def _load(self, child: Child) -> None:
        try:
            await self._data.hold(0, child.role, child.rank, lambda: self._tell(child, "data progressed"))
        except DaskTrainError as error:
            self._tell(child, "data failed", error=str(error))
        else:
            self._tell(child, "loaded")

    def _go(self, child: Child, command: dict[str, Any]) -> None:
        child.tell(
            "go",
            peers=AddressBook({role: list(peers) for role, peers in command["peers"].items()}),
            timeout_s=command["timeout_s"],
            patience_s=self.brief.patience_s,
            **self._data.letter(0, child.role, child.rank),
        )

    async def _diagnose(self, child: Child) -> None:
        self._tell(child, "diagnosis", picture=await child.picture())

    async def _bring_dataset(self, child: Child, command: dict[str, Any]) -> None:
        """Open a published data set for a role process that has asked for it."""
        number, error = command["dataset"], command["error"]
        letter: dict[str, Any] = {}
        try:
            if not error:
                await self._data.hold(number, child.role, child.rank, lambda: self._tell(child, "data progressed"))
                letter = self._data.letter(number, child.role, child.rank)
        except DaskTrainError as failure:
            error = str(failure)
        child.tell("dataset", question=command["question"], error=error, number=number, **letter)

    async def _bring_group(self, child: Child, command: dict[str, Any]) -> None:
        """Open a group of a data set that is streamed, which the driver has computed."""
        error, letter = command["error"], {}
        try:
            if not error:
                letter = await self._data.open_group(
                    Stream(*command["stream"]),
                    child.role,
                    child.rank,
                    command["group"],
                    command["needed_from"],
                    command["schema"],
                    dict(command["keys"]),
                    lambda: self._tell(child, "data progressed"),
                )
        except DaskTrainError as failure:
            error = self._no_data(child, failure)
        child.tell("group", question=command["question"], error=error, **letter)

    async def _bring_rows(self, child: Child, message: dict[str, Any]) -> None:
        """Rows that a role process needs and that lie on other hosts."""
        error, columns = "", []
        asked = (message["partition"], message["row"])
        try:
            columns = await self._data.rows(Stream(*message["stream"]), child.role, child.rank, *asked)
        except DaskTrainError as failure:
            error = self._no_data(child, failure)
        child.tell("rows", question=message["question"], error=error, columns=columns)

    def _no_data(self, child: Child, failure: DaskTrainError) -> str:
        """What the role process is told; where the data can't be had any more, the run ends for it."""
        if isinstance(failure, DataError):
            self._tell(child, "data failed", error=str(failure))
        return str(failure)

    # What role processes say

    def _heard(self, child: Child, message: dict[str, Any]) -> None:
        if self.children.get((child.role, child.rank)) is not child:
            return  # it has been replaced
        kind = message.pop("kind")
        if kind == "rows":
            self._spawn(self._bring_rows(child, message))
            return
        if kind == "left":
            self._data.leave(Stream(*message["stream"]), child.role, child.rank)
        if kind in ("ended", "failed"):
            self._keep_output(child)
            message["account"] = child.batches()
        self._tell(child, kind, urgent=kind not in ("scores", "progress"), **message)

    def _gone(self, child: Child, cause: str) -> None:
        if self.children.get((child.role, child.rank)) is child:
            self._keep_output(child)
            self._data.gone(child.role, child.rank)
            self._tell(child, "exited", cause=cause, account=child.batches())

    def _keep_output(self, child: Child) -> None:
        """Let the record have the end of it: with its last word, and again what it printed until its process ended."""
        end, data = child.output.bytes_since(0, LAST_OUTPUT_BYTES)
        self._output.append([child.role, child.rank, child.attempt, end, data])

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
        if self._output:  # nobody waits for it, but it is what those who look later will want
            with suppress(DaskTrainError, TimeoutError):
                last = self.peer.ask(
                    "train_run_tell", run=self.brief.run, agent=self.name, events=[], output=self._output, timeout_s=1.0
                )
                await asyncio.wait_for(self.on_worker_loop(last), 1.0)
        if self._failure is not None:
            raise copy.copy(self._failure)


def _tls(worker: Worker) -> dict[str, str] | None:
    """The Dask worker's certificates, as role processes may use them; None where the cluster has no TLS."""
    if not worker.address.startswith("tls://"):
        return None
    config = worker.security.get_tls_config_for_role("worker")
    return {name: value for name, value in config.items() if value}


def registry(worker: Worker) -> dict[str, Agent]:
    """The agents on a Dask worker, by run."""
    if not hasattr(worker, "train_agents"):
        worker.train_agents = {}
    agents: dict[str, Agent] = worker.train_agents
    return agents
