"""The driver: the only loop of a run. Feeds what happens into ``run.transitions``, and carries out what that wants."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from dask_train.cluster.chronicle import Chronicle
from dask_train.cluster.dispatch import Dispatch
from dask_train.cluster.extension import ensure_plugin
from dask_train.cluster.own_cluster import shield, unshield
from dask_train.cluster.peer import POLL_S, Peer
from dask_train.cluster.run_data import RunData
from dask_train.collections import check_data
from dask_train.data.stream import Stream
from dask_train.errors import ClosedError, DaskTrainError, DataError
from dask_train.frameworks.base import Framework
from dask_train.run import commands, events
from dask_train.run.state import ALIVE, Phase, RolePhase, RunPlan, RunState
from dask_train.run.stopping import RunProgress, StopRule
from dask_train.run.transitions import begin, step

# How often deadlines are looked at, and those who look from elsewhere are told.
TICK_S = 0.25
# How often a role's progress is noted; reports may come thousands a second.
PROGRESS_S = 1.0
# How long pictures of roles are waited for, half a second of which the roles' stacks take.
PICTURES_S = 3.0
# How long Dask may take to give up the run's data.
CANCEL_S = 5.0


@dataclass(frozen=True, kw_only=True)
class Job:
    """What a driver is given.

    Attributes
    ----------
    id
        The name of the run.
    plan
        What the course of the run depends on.
    functions, names
        Pickled functions by role, and what the user called them.
    framework
        The adapter.
    needs
        Resources that each process of a role needs, by role.
    on
        The Dask workers to choose from; None for all.
    stop
        The rule that ends the run, if any.
    checkpoint
        Where checkpoints are kept, if anywhere.
    runs_on_host
        How many runs like this one share each host's cores.
    """

    id: str
    plan: RunPlan
    functions: dict[str, bytes]
    names: dict[str, str]
    framework: Framework
    needs: dict[str, dict[str, float]]
    on: list[str] | None
    stop: StopRule | None
    checkpoint: str | None
    runs_on_host: int = 1


class Driver:
    """Drives one run; lives on the client's event loop.

    Attributes
    ----------
    state
        What is known of the run now.
    chronicle
        What has been told: scores, results, output, attempts, the event log.
    """

    def __init__(self, peer: Peer, job: Job, data: RunData) -> None:
        self.peer, self.job, self.data = peer, job, data
        self.chronicle = Chronicle(job)
        self.state: RunState
        self.state, self._todo = begin(job.plan, time.time())
        self.chronicle.begin(self.state)
        self.finish: commands.Finish | None = None
        self._dispatch = Dispatch(self)
        self._events: asyncio.Queue[events.Event] = asyncio.Queue()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._rule_seen = 0
        self._noted: dict[str, Any] = {}
        self._news = asyncio.Event()
        self._unsent: dict[commands.Key, list[bytes]] = {}  # for roles that have not been started yet
        self.waiting_for = ""

    # For those who wait, on the event loop

    async def until(self, met: Callable[[], bool], deadline: float | None = None) -> bool:
        """Wait until ``met()``, or until ``time.monotonic()`` has reached the deadline; whether it is met.

        Without a deadline it is for those who wait for the run itself, which has deadlines of its own.
        """
        while not met():
            left_s = POLL_S if deadline is None else min(POLL_S, deadline - time.monotonic())
            if left_s <= 0:
                return False
            with suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), left_s)
        return True

    def tell(self) -> None:
        """Let those who wait look again."""
        self._news.set()
        self._news = asyncio.Event()

    @property
    def over(self) -> bool:
        """Whether the run has ended, and nothing of it is left."""
        return self.chronicle.closed

    # The loop

    async def drive(self) -> None:
        """Drive the run to its end; never raises what the run ends with, see :attr:`finish`."""
        todo = self._todo
        try:
            await self._open()
            for work in (self._follow(), self._tick(), self._dispatch.run(), self._compute()):
                self.spawn(work)
            while True:
                for command in todo:
                    self._carry_out(command)
                if self.finish is not None:
                    return
                event = await self._events.get()
                before = self.state
                self.state, todo = step(before, event)
                self.chronicle.turned(before, event, self.state, todo)
                if isinstance(event, events.OfRole) and self.state.roles[event.key].phase not in ALIVE:
                    self.data.left(*event.key)
                self.tell()
        except Exception as error:  # what is our bug, or the scheduler's end, must reach whoever waits
            self.finish = commands.Finish(verdict=commands.Verdict.DRIVER, what=_in_words(error))
            self.chronicle.driver_error = error
        finally:
            await self._close()

    async def _open(self) -> None:
        await ensure_plugin(self.peer)
        await shield(self.peer)
        info = {
            "roles": dict(self.job.plan.counts),
            "framework": self.job.framework.name,
            "functions": self.job.names,
        }
        answer = await self.peer.ask("train_run_open", run=self.job.id, client=self.peer.id, info=info)
        if answer["status"] != "OK":
            raise DaskTrainError(
                f"The Dask scheduler does not know the client {self.peer.id}: its connection was lost."
            )

    async def _close(self) -> None:
        """Leave nothing: no task here, no agent, no room taken, no data that is still being computed."""
        for task in list(self._tasks):
            task.cancel()
        self.chronicle.finished(self.finish)
        try:
            with suppress(DaskTrainError, OSError, TimeoutError):
                await self._dispatch.end(self.summary())
            with suppress(DaskTrainError, OSError, RuntimeError, TimeoutError):  # a closed client raises RuntimeError
                await asyncio.wait_for(self.data.cancel(), CANCEL_S)
            await unshield(self.peer)
        finally:  # whoever waits is told, whatever went wrong
            self.chronicle.closed = True
            self.tell()

    def spawn(self, work: Any) -> asyncio.Task[Any]:
        """Do something beside the loop; when it fails, so does the run."""
        task: asyncio.Task[Any] = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._spawned)
        return task

    def _spawned(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            silent = f"The Dask scheduler did not answer for {self.job.plan.progress_s:g} s."
            what = silent if isinstance(error, TimeoutError) else _in_words(error)
            self.chronicle.driver_error = error
            self.happened(events.DriverFailed(time=time.time(), error=what))

    def happened(self, event: events.Event) -> None:
        """Let the run know."""
        self._events.put_nowait(event)

    def stop(self, reason: str) -> None:
        """End the run in order; on the event loop."""
        self.happened(events.StopAsked(time=time.time(), reason=reason))

    def send(self, keys: Sequence[commands.Key], value: bytes) -> None:
        """Send a pickled value to roles, as soon as they are there; on the event loop."""
        for key in keys:
            phase = self.state.roles[key].phase
            if phase in ALIVE:
                self._dispatch.value(key, value)
            elif phase is RolePhase.PLACING:
                self._unsent.setdefault(key, []).append(value)

    def _carry_out(self, command: commands.Command) -> None:
        if isinstance(command, commands.Finish):
            self.finish = command
        elif isinstance(command, commands.Diagnose):
            self.spawn(self._diagnose_stall(command.roles))
        else:
            self._dispatch.put(command)
            if isinstance(command, commands.Start):
                key = (command.role, command.rank)
                for value in self._unsent.pop(key, ()):
                    self._dispatch.value(key, value)

    # What happens beside it

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            self.happened(events.Ticked(time=time.time()))
            self._judge()  # rules may look at the clock
            summary = self.summary()
            if summary != self._noted:
                self._noted = summary
                await self.peer.ask("train_run_note", run=self.job.id, summary=summary)

    async def _compute(self) -> None:
        if not self.data.by_role:
            return
        try:
            await self.data.described(lambda: self.happened(events.DataProgressed(time=time.time())))
        except DataError as error:
            self.chronicle.driver_error = error.__cause__
            self.happened(events.DataFailed(time=time.time(), error=str(error)))
        else:
            self.happened(events.DataReady(time=time.time()))

    async def _follow(self) -> None:
        since = 0
        while True:
            asking = self.peer.ask("train_run_events", run=self.job.id, since=since, timeout_s=POLL_S)
            answer = await asyncio.wait_for(asking, POLL_S + self.job.plan.progress_s)  # or it hangs
            if answer["status"] != "OK":
                self.happened(
                    events.DriverFailed(time=time.time(), error=f"The scheduler has ended run {self.job.id}.")
                )
                return
            since += len(answer["events"])
            for raw in answer["events"]:
                self._heard(dict(raw))
            if answer["events"]:
                self._judge()
                self.tell()

    def _heard(self, raw: dict[str, Any]) -> None:
        """One thing that an agent, the scheduler or another client told."""
        kind = raw.pop("kind")
        if kind == "worker lost":
            self._dispatch.worker_lost(raw["address"])
            self.happened(events.WorkerLost(**raw))
        elif kind == "stop":
            self.happened(events.StopAsked(time=raw["time"], reason=raw["reason"]))
        elif kind in ("data progressed", "data failed"):
            if kind == "data failed":
                self.happened(events.DataFailed(time=raw["time"], error=raw["error"]))
            else:
                self.happened(events.DataProgressed(time=raw["time"]))
        elif self.state.roles[raw["role"], raw["rank"]].attempt == raw["attempt"]:
            self._heard_of_role(kind, raw)

    def _heard_of_role(self, kind: str, raw: dict[str, Any]) -> None:
        of_role = {name: raw[name] for name in ("role", "rank", "attempt", "time")}
        key = (raw["role"], raw["rank"])
        if "account" in raw:
            self.chronicle.accounts.setdefault(key, {})[raw["attempt"]] = raw["account"]
        if kind in ("scores", "progress", "value"):
            if self.chronicle.moved(key, kind, raw, PROGRESS_S):
                self.happened(events.Progressed(**of_role))
        elif kind == "diagnosis":
            self.chronicle.pictures[key] = raw["picture"]
        elif kind == "dataset":
            self.spawn(self._open_dataset(of_role, raw["question"], raw["name"]))
        elif kind == "group":
            question = {name: raw[name] for name in ("question", "stream", "group", "needed_from")}
            self.spawn(self._open_group(of_role, question))
        elif kind == "left":
            self.data.by_role[key[0]].left(key[0], key[1], Stream(*raw["stream"]))
        elif kind == "ended":
            self.chronicle.results[key] = raw["result"]
            self.happened(events.Ended(**of_role))
        elif kind == "failed":
            self.chronicle.raised[key] = raw
            self.happened(events.Failed(**of_role, error=raw["error"], launching=raw["launching"]))
        elif kind == "ready":
            self.happened(events.Ready(**of_role, pid=raw["pid"], peer=raw["peer"]))
        elif kind == "exited":
            self.happened(events.Exited(**of_role, cause=raw["cause"]))
        else:
            self.happened({"loaded": events.Loaded, "started": events.Started}[kind](**of_role))

    async def _open_dataset(self, of_role: dict[str, Any], question: int, name: str) -> None:
        try:
            number = await self.data.open(name, check_data)
        except DataError as error:
            self._dispatch.dataset(of_role, question, error=str(error))
        else:
            self._dispatch.dataset(of_role, question, number=number)

    async def _open_group(self, of_role: dict[str, Any], question: dict[str, Any]) -> None:
        role, rank = of_role["role"], of_role["rank"]
        stream = Stream(*question["stream"])
        try:
            schema, keys = await self.data.by_role[role].group(
                role, rank, stream, question["group"], question["needed_from"]
            )
        except ClosedError as error:
            self._dispatch.group(of_role, question, error=str(error))
        except DataError as error:
            self.chronicle.driver_error = error.__cause__
            self.happened(events.DataFailed(time=time.time(), error=str(error)))
        else:
            self._dispatch.group(of_role, question, schema=schema, keys=keys)

    def _judge(self) -> None:
        """Ask the stop rule about what is new."""
        rule = self.job.stop
        if rule is None or self.state.phase is not Phase.RUNNING:
            return
        seconds = time.time() - self.state.since
        progress = RunProgress(steps=self.chronicle.most_steps, seconds=seconds)
        try:
            reason = rule.met(self.chronicle.scores, progress, since=self._rule_seen)
        except Exception as error:
            self.chronicle.driver_error = error
            self.happened(events.DriverFailed(time=time.time(), error=f"The stop rule raised {error!r}."))
            return
        self._rule_seen = len(self.chronicle.scores)
        if reason:
            self.stop(reason)

    # Looking into it

    async def _diagnose_stall(self, keys: Sequence[commands.Key]) -> None:
        await self.picture(keys)
        now = time.time()
        self.happened(events.Diagnosed(time=now, stalled=self.chronicle.stalled(keys, self.state)))

    async def picture(self, keys: Sequence[commands.Key] | None = None) -> str:
        """Phases, last words and Python stacks of roles, all that are alive where ``keys`` is None, as text."""
        alive = [key for key, role in self.state.roles.items() if role.phase in ALIVE]
        chosen = [key for key in alive if keys is None or key in keys]
        self.chronicle.pictures = {}
        self._dispatch.diagnose(chosen)
        await self.until(lambda: len(self.chronicle.pictures) >= len(chosen), time.monotonic() + PICTURES_S)
        self.chronicle.diagnosis = self.chronicle.diagnosis_text(self.state)
        return self.chronicle.diagnosis

    def summary(self) -> dict[str, Any]:
        """The run as those see it who look from elsewhere; plain values."""
        roles = []
        for (name, rank), role in self.state.roles.items():
            doing, steps = self.chronicle.doing.get((name, rank), ("", 0))
            shown = doing if role.phase is RolePhase.RUNNING else ""
            roles.append([name, rank, str(role.phase), role.attempt, role.address, role.pid, shown, steps])
        waiting = self.waiting_for if self.state.phase is Phase.PLACING else ""
        return {
            "phase": str(self.state.phase),
            "roles": roles,
            "waiting": waiting,
            "num_scores": len(self.chronicle.scores),
            "last_scores": self.chronicle.last_scores(),
            "losses": list(self.state.losses),
            "outcome": self.chronicle.outcome,
        }


def _in_words(error: BaseException) -> str:
    return str(error) if isinstance(error, DaskTrainError) else f"{type(error).__name__}: {error}"
