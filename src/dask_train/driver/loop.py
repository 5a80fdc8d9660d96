"""The driver: the only loop of a run. Feeds what happens into ``run.transitions``, and carries out what that wants."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from distributed.client import ClosedClientError

from dask_train.cluster.own_cluster import Shield
from dask_train.cluster.peer import Peer
from dask_train.cluster.plugin import ensure_dashboard, ensure_plugin
from dask_train.compat.distributed import cluster_maximum
from dask_train.driver.agent_messages import AgentMessages
from dask_train.driver.computing import LOOKS, while_computed
from dask_train.driver.dispatch import Dispatch
from dask_train.driver.job import Job
from dask_train.driver.run_context import RunContext
from dask_train.driver.setting_texts import setting_texts
from dask_train.errors import DaskTrainError, DataError, in_words
from dask_train.masking import masked_value
from dask_train.process.messages import Diagnose, Value, from_plain
from dask_train.run import commands, events
from dask_train.run.messages import DataFailed, DataProgressed, StartProcess, Stop
from dask_train.run.state import ALIVE, Phase, RolePhase, RunState
from dask_train.run.stopping import RunProgress
from dask_train.run.transitions import step
from dask_train.shared_data.run_data import RunData

# How often deadlines are checked, and other clients that watch are informed.
TICK_S = 0.25
# A check of deadlines that is late by this much shows that this process was stopped, or its event loop blocked.
SLEPT_S = 1.0
# How long a role's progress waits for that of others, as each answer costs the scheduler a message, and at most which
# part of the time that a run may take to make any; where a stop rule may count steps it does not wait.
PROGRESS_S, PROGRESS_PART = 1.0, 0.05
# Most trials in one message: those that a worker of a search may have been handed within a tick.
SHOWN_TRIALS = 16
# How long pictures of roles are waited for, half a second of which the roles' stacks take.
PICTURES_S = 3.0
# How long agents are waited for when the run is over, whose role processes are dead by then, and how long Dask may take
# to give up the run's data.
AGENTS_S = 10.0
CANCEL_S = 5.0
# The same where the scheduler has not answered for as long as it may take: the message is for when it continues.
UNANSWERED_S = 0.5


class Driver(RunContext):
    """Drives one run.

    Parameters
    ----------
    peer, job, data
        As :class:`RunContext` has them.
    beside
        What else is done with the driver while the run lasts. Default: nothing.
    """

    def __init__(
        self, peer: Peer, job: Job, data: RunData, beside: Sequence[Callable[[Driver], Awaitable[None]]] = ()
    ) -> None:
        super().__init__(peer, job, data)
        self._beside = beside
        self.finish: commands.Finish | None = None
        self.dispatch = Dispatch(self)
        self._agent_messages = AgentMessages(self, self.dispatch)
        self._shield = Shield(peer)
        self._rule_seen = 0
        self._trains_since: float | None = None  # when all roles had started for the first time
        self._num_waits = 0
        self.resizing = asyncio.Lock()  # one change of the number of workers after the other
        self.num_resizes = 0  # that were asked for
        self.follows = job.run.follows  # None once the user has asked for a number
        self._noted: dict[str, Any] = {}
        self._unsent: dict[commands.Key, list[bytes]] = {}  # for roles that have not been started yet
        self.trials: deque[dict[str, Any]] = deque(maxlen=SHOWN_TRIALS)  # of a search, that it was handed last

    @property
    def over(self) -> bool:
        """Whether the run has ended, and nothing of it is left."""
        return self.history.closed

    # The loop

    async def drive(self) -> None:
        """Drive the run to its end; never raises what the run ends with, see :attr:`finish`."""
        todo = self._todo
        try:
            await self._open()
            for work in (self._hear(), self._tick(), self._note(), self.dispatch.run(), self._compute()):
                self.spawn(work)
            for begin in self._beside:
                self.spawn(begin(self))
            while True:
                for command in todo:
                    self._carry_out(command)
                if self.finish is not None:
                    return
                event = await self._events.get()
                before = self.state
                self.state, todo = step(before, event)
                self.history.turned(before, event, self.state, todo)
                self._let_data_go(before)
                self.tell()
        except Exception as error:  # what is our bug, or the scheduler's end, must reach all waiters
            self.finish = commands.Finish(verdict=commands.Verdict.DRIVER, what=in_words(error))
            self.history.driver_error = error
        finally:
            await self._close()

    def _let_data_go(self, before: RunState) -> None:
        """Forget what ended processes read and what their roles have left, no matter who reported the end."""
        for key, role in self.state.roles.items():
            was = before.roles.get(key, role)
            if (was.phase in ALIVE and role.phase not in ALIVE) or role.attempt != was.attempt:
                self.data.left(*key)

    async def _open(self) -> None:
        await ensure_plugin(self.peer)
        await ensure_dashboard(self.peer)
        await self._shield.up()
        info = {
            "roles": dict(self.job.plan.counts),
            "framework": self.job.framework.name,
            "functions": self.job.names,
            "settings": setting_texts(self.job.params),
        }
        lease = {"lease_s": self.job.client_s, "keys": self.data.own_keys()}
        follows, plan = self.follows is not None, self.job.plan
        lease |= {"in_place": plan.in_place or follows, "follows": follows and plan.one_host}
        lease["cluster_maximum"] = cluster_maximum(self.peer.dask_end)
        answer = await self.peer.ask("train_run_open", run=self.job.id, client=self.peer.id, info=info, **lease)
        if answer["status"] != "OK":
            raise DaskTrainError(
                f"The Dask scheduler does not know the client {self.peer.id}: its connection was lost."
            )

    async def _close(self) -> None:
        """Leave nothing: no task here, no agent, no room taken, no data that is still being computed."""
        for task in list(self._tasks):
            task.cancel()
        try:
            self._finished()
            with suppress(DaskTrainError, OSError, TimeoutError):
                await self.dispatch.end(self._last_summary(), UNANSWERED_S if self.is_unanswered else AGENTS_S)
            with suppress(DaskTrainError, OSError, RuntimeError, TimeoutError, ClosedClientError):  # it may be closed
                await asyncio.wait_for(self.data.cancel(), UNANSWERED_S if self.is_unanswered else CANCEL_S)
        finally:  # Dask's configuration is as before, and waiters are informed, whatever went wrong
            try:
                await self._shield.down()
            finally:
                self.history.closed = True
                self.tell()

    def _finished(self) -> None:
        """Note how the run has ended; a stop rule or a logger that raises here is how it has."""
        try:
            self.history.finished(self.finish, self.job.run.stop)
        except Exception as error:
            self.finish = commands.Finish(verdict=commands.Verdict.DRIVER, what=in_words(error))
            self.history.driver_error = error
            with suppress(Exception):
                self.history.finished(self.finish)

    @contextmanager
    def awaited(self) -> Iterator[None]:
        """While it lasts the client waits for the run, so roles that wait for the client get nothing; in any thread."""
        self.peer.loop.add_callback(self._wait_begins)
        try:
            yield
        finally:
            with suppress(RuntimeError):  # the client's loop has ended, and the run with it
                self.peer.loop.add_callback(self._wait_ends)

    def _wait_begins(self) -> None:
        self._num_waits += 1
        if self._num_waits == 1:
            self.happened(events.ClientWaits(waits=True))

    def _wait_ends(self) -> None:
        self._num_waits -= 1
        if not self._num_waits:
            self.happened(events.ClientWaits(waits=False))

    def stop(self, reason: str) -> None:
        """End the run in order; on the event loop."""
        self.happened(Stop(reason=reason))

    def send(self, keys: Sequence[commands.Key], value: bytes) -> None:
        """Send a pickled value to roles, as soon as they are there; on the event loop."""
        for key in keys:
            phase = self.state.roles[key].phase
            if phase in ALIVE:
                self.dispatch.tell(key, Value(value=value))
            elif phase is RolePhase.PLACING:
                self._unsent.setdefault(key, []).append(value)

    def _carry_out(self, command: commands.Command) -> None:
        if isinstance(command, commands.Finish):
            self.finish = command
        elif isinstance(command, commands.DiagnoseRoles):
            self.spawn(self._diagnose_stall(command.roles))
        else:
            self.dispatch.put(command)
            if isinstance(command, commands.Tell) and isinstance(command.message, StartProcess):
                for value in self._unsent.pop(command.to.key, ()):
                    self.dispatch.tell(command.to.key, Value(value=value))

    # What happens alongside it

    async def _tick(self) -> None:
        while True:
            began = time.monotonic()
            await asyncio.sleep(TICK_S)
            if (late_s := time.monotonic() - began - TICK_S) > SLEPT_S:
                self.now.leave_out(late_s)
            self.happened(events.Ticked())
            self._judge()  # rules may look at the clock

    async def _note(self) -> None:
        """Inform other clients that watch; not a part of the clock, which continues without the scheduler."""
        while True:
            await asyncio.sleep(TICK_S)
            summary = self.summary()
            if summary != self._noted:
                self._noted = summary
                await self.peer.ask("train_run_note", run=self.job.id, summary=summary)

    async def _compute(self) -> None:
        if not self.data.by_role:
            return

        def progressed() -> None:
            self.happened(DataProgressed())

        every_s = self.state.plan.progress_s / LOOKS
        try:
            async with while_computed(self.peer, self.data.own_keys, every_s, progressed):
                await self.data.described(progressed)
            self.history.files_skipped(self.data.num_skipped())
        except DataError as error:
            self.history.driver_error = error.__cause__
            self.happened(DataFailed(error=str(error)))
        else:
            self.happened(events.DataReady())

    async def _hear(self) -> None:
        since = 0
        progress_s = min(PROGRESS_S, PROGRESS_PART * self.job.plan.progress_s) if self.job.run.stop is None else 0.0
        polls = {"run": self.job.id, "timeout_s": self.peer.poll_s, "progress_s": progress_s}
        while True:
            question = {**polls, "since": since}
            answer = await self.peer.ask("train_run_events", **question)
            if answer["status"] != "OK":
                record = await self.peer.ask("train_run_show", run=self.job.id, output=False)
                why = record.get("summary", {}).get("outcome", "it was started again")
                what = f"The scheduler has ended run {self.job.id}: {why}."
                self.happened(events.DriverFailed(error=what))
                return
            since += len(answer["events"])
            for raw in answer["events"]:
                self._agent_messages.handle(*from_plain(raw))
            if answer["events"]:
                self._judge()
                self.tell()

    def _judge(self) -> None:
        """Ask the stop rule about what is new."""
        rule = self.job.run.stop
        if rule is None or self.state.phase is not Phase.RUNNING:
            return
        if self._trains_since is None:
            self._trains_since = self.state.since
        progress = RunProgress(
            steps=self.history.most_steps,
            seconds=self.now() - self._trains_since,
            reported=self.history.reported_as_progress,
        )
        try:
            reason = rule.met(self.history.scores, progress, since=self._rule_seen)
        except BaseException as error:  # also SystemExit, which would end the event loop, and with it the client
            self.history.driver_error = error
            self.happened(events.DriverFailed(error=f"The stop rule raised {in_words(error)}."))
            return
        self._rule_seen = len(self.history.scores)
        if reason:
            self.stop(reason)

    # Looking into it

    async def _diagnose_stall(self, keys: Sequence[commands.Key]) -> None:
        await self.picture(keys)
        there = [key for key in keys if self.state.roles[key].phase in ALIVE]
        silent = self.history.silent(there)
        if silent:
            addresses = {self.state.roles[key].address for key in silent}
            await self.peer.ask("train_run_silent", addresses=list(addresses), silent_s=self.job.plan.progress_s / 2)
        stalled = self.history.stalled(there, self.state)
        frozen, stopped = self.history.frozen(there), self.history.stopped(there)
        self.happened(events.Diagnosed(stalled=stalled, silent=silent, frozen=frozen, stopped=stopped))

    async def picture(self, keys: Sequence[commands.Key] | None = None) -> str:
        """Phases, last words and Python stacks of roles, all that are alive where ``keys`` is None, as text."""
        alive = [key for key, role in self.state.roles.items() if role.phase in ALIVE]
        chosen = [key for key in alive if keys is None or key in keys]
        self.history.pictures = {}
        for key in chosen:
            self.dispatch.tell(key, Diagnose())
        await self.until(lambda: len(self.history.pictures) >= len(chosen), time.monotonic() + PICTURES_S)
        self.history.diagnosis = self.history.diagnosis_text(self.state)
        return self.history.diagnosis

    def summary(self) -> dict[str, Any]:
        """Return the run as other clients see it; plain values."""
        roles = []
        for (name, rank), role in self.state.roles.items():
            doing, steps = self.history.doing.get((name, rank), ("", 0))
            shown = doing if role.phase is RolePhase.RUNNING else ""
            roles.append([name, rank, str(role.phase), role.attempt, role.address, role.pid, shown, steps])
        waiting = self.waiting_for if self.state.phase is Phase.PLACING else ""
        summary = {
            "phase": str(self.state.phase),
            "roles": roles,
            "waiting": waiting,
            "num_scores": len(self.history.scores),
            "last_scores": self.history.last_scores(),
            "losses": list(self.state.losses),
            "num_restarts": self.state.num_restarts,
            "outcome": self.history.outcome,
            "trials": list(self.trials),
            "most_workers": self.follows.high if self.follows is not None and self.job.run.on is None else 0,
        }
        return dict(masked_value(summary))

    def _last_summary(self) -> dict[str, Any]:
        """Return the same of a run that is over, with its rows by class of the ledger."""
        rows: dict[str, int] = {}
        with suppress(KeyError):  # a data set that could not be opened
            rows = self.history.rows(self.data.num_rows())
        return {**self.summary(), "rows": rows}
