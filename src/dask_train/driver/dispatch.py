"""Sends a driver's commands to the scheduler and to the agents, in order, and starts the agents."""

from __future__ import annotations

import asyncio
import pickle
import platform
import secrets
import time
import uuid
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import replace
from typing import Any

from distributed import Future
from distributed.protocol.pickle import dumps

from dask_train.cluster.by_value import ByValue
from dask_train.data.letterbox import Letterbox
from dask_train.data.parcel import reachable
from dask_train.driver.devices import RunDevices
from dask_train.driver.run_context import RunContext
from dask_train.printing import say
from dask_train.process import messages
from dask_train.process.messages import to_plain
from dask_train.run import commands, events
from dask_train.run.messages import Go, Load, Message, Met, RoleProcess, StartProcess, WorkerLost
from dask_train.run.state import ALIVE, RolePhase, name_of
from dask_train.shared_data.run_data import DataSetOnDask
from dask_train.shared_data.streaming import StreamOnDask
from dask_train.version import __version__
from dask_train.worker import agent_task
from dask_train.worker.brief import Brief

# The part of ``train.placement.timeout`` that a run waits for Dask workers of an adaptive cluster. Then its roles share
# threads of those that are there.
SHARES_AFTER = 0.5
# How often a run that waits for room says for what.
PLACE_POLL_S = 1.0
# How often a run that may use GPUs looks for Dask workers while none has said which it has.
COME_POLL_S = 0.2
# How often the progress of roles that report nothing is sent, which costs the scheduler two messages an agent: for
# those who look, and where a stop rule may count steps.
QUIET_S, LIVELY_S = 2.0, 0.5
# A brief that holds a model of more bytes than this goes to its Dask worker by itself: what is in a task's arguments
# stays with the scheduler for as long as the task runs.
LARGE_BYTES = 1 << 20
# How long roles on a Dask worker that leaves may take to end with a step, if the run follows the Dask workers: of the
# 4 s that Dask's nanny waits, enough has to be left for their ends.
LEAVE_S = 1.0
# How long a Dask worker may take to say whether it can map memory of this process.
REACH_S = 10.0


class Dispatch:
    """Sends the commands of a run to the scheduler and the agents that carry them out."""

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._job = context.job
        self._peer = context.peer
        self._orders: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()
        self._agents: dict[str, tuple[str, Future]] = {}  # by Dask worker
        self._briefs: dict[str, Future] = {}  # large ones, by Dask worker
        self._watching: set[asyncio.Task[None]] = set()
        self._hosts: dict[str, str] = {}
        self._was_on: dict[commands.Key, str] = {}  # the last Dask worker of each role
        self._has_said_sharing = False
        self._lost: set[str] = set()  # Dask workers: one that is started again has another address
        self._announced: set[tuple[str, str, int]] = set()  # which agent knows which role's data set
        self._secret = secrets.token_bytes(32)
        self._placing: dict[tuple[commands.Key, ...], tuple[asyncio.Task[Any], commands.PlaceRoles]] = {}
        plan = self._job.plan
        with_device = [role for role in plan.counts if role != "ps"]
        self._devices = RunDevices(self._peer, self._job.run.gpus, with_device, context.history.notice)
        self._brief = Brief(
            run=self._job.id,
            counts=dict(plan.counts),
            training=plan.training_roles(),
            functions=self._job.functions,
            framework=dumps(self._job.framework),  # one that is defined in a notebook goes by value
            checkpoint=self._job.checkpoint,
            settings=self._job.settings,
            preload=self._job.preload,
            progress_every_s=min(QUIET_S if self._job.run.stop is None else LIVELY_S, plan.progress_s / 10),
            data_timeout_s=plan.progress_s,
            stop_s=plan.stop_s,
            needs_devices=self._job.run.gpus == 1,
            keeps_state=self._job.framework.keeps_state,
            leave_within_s=LEAVE_S if self._job.run.follows is not None else 0.0 if plan.in_place else None,
        )
        self._lent = {role: function.lent() for role, function in self._job.functions.items()}
        self._is_large = any(function.segments for function in self._job.functions.values())
        if self._is_large:
            context.history.letterbox = Letterbox()

    def put(self, command: commands.Command) -> None:
        """Queue a command, to be carried out after earlier ones."""
        if isinstance(command, commands.PlaceRoles | commands.Free):
            others = self._not_placed(command.roles)
            self._orders.put_nowait(("place" if isinstance(command, commands.PlaceRoles) else "free", command))
            for other in others:
                self._orders.put_nowait(("place", other))
        elif isinstance(command, commands.Tell):
            if isinstance(command.message, StartProcess) and command.address not in self._agents:
                self._orders.put_nowait(("agent", command.address))
            if isinstance(command.message, Load):
                self.tell_of(command.to, 0, self._context.data.by_role[command.to.role])
            self._send(command.address, self._completed(command), command.to)

    def _not_placed(self, keys: Sequence[commands.Key]) -> list[commands.PlaceRoles]:
        """End requests for room for these roles; return those for the others that were asked for with them."""
        others = []
        for roles in [roles for roles in self._placing if set(roles) & set(keys)]:
            placing, command = self._placing.pop(roles)
            phases = {key: self._context.state.roles[key].phase for key in roles if key not in keys}
            left = tuple(key for key, phase in phases.items() if phase is RolePhase.PLACING)
            if left and not placing.done():
                others.append(replace(command, roles=left))
            placing.cancel()
        return others

    def _completed(self, command: commands.Tell) -> Message:
        """Return the message of a command, with the fields that the state of the run does not know."""
        match command.message:
            case StartProcess() as message:
                use = self._devices.use_of(command.to.key, command.address)
                num_roles = self._roles_on_host(command.address)
                return replace(message, roles_on_host=num_roles, device=use.entry, num_sharing=use.num_sharing)
            case Go() as message:
                return replace(message, peers=self._peers(), timeout_s=self._job.plan.rendezvous_s)
            case Met() as message:
                return replace(message, secret=self._secret)
        return command.message

    def _send(self, address: str, message: Message, of: RoleProcess | None = None) -> None:
        self._orders.put_nowait(("message", (address, to_plain(message, of))))

    def answer(self, of: RoleProcess, message: Message) -> None:
        """Send a message to an attempt of a role; its agent drops it if that attempt was replaced."""
        self._send(self._context.state.roles[of.key].address, message, of)

    def tell(self, key: commands.Key, message: Message) -> None:
        """Send a message to the current attempt of a role."""
        role = self._context.state.roles[key]
        self._send(role.address, message, RoleProcess(*key, role.attempt))

    def tell_of(self, of: RoleProcess, number: int, data: DataSetOnDask | StreamOnDask) -> None:
        """Send the description of a data set to a role's agent, once; rows stay where they are placed during a run."""
        roles = self._context.state.roles
        announcement = (roles[of.key].address, of.role, number)
        if announcement not in self._announced:
            self._announced.add(announcement)
            keys = [(of.role, rank) for rank in range(self._context.state.plan.counts[of.role])]
            ranks = [roles[key].address or self._was_on[key] for key in keys]  # some may wait for room again
            table = data.table(of.role, ranks)
            where = [[address for address in holders if address not in self._lost] for holders in data.where]
            message = messages.DataSetPlaces(role=of.role, number=number, table=table, keys=data.keys, where=where)
            self._send(announcement[0], message)

    def _roles_on_host(self, address: str) -> int:
        """Count the roles that share a host's cores; those that are lost as well come back, mostly there."""
        host = self._hosts.get(address, address)
        roles = self._context.state.roles
        self._was_on.update({key: role.address for key, role in roles.items() if role.address})
        where = [self._was_on[key] for key in roles if key in self._was_on]
        return Counter(self._hosts.get(each, each) for each in where)[host] * self._job.run.runs_on_host

    def _peers(self) -> dict[str, list[str]]:
        peers: dict[str, list[str]] = {}
        for (role, _), member in self._context.state.roles.items():
            peers.setdefault(role, []).append(member.peer)
        return peers if any(peer for addresses in peers.values() for peer in addresses) else {}

    def worker_lost(self, address: str) -> None:
        """Forget the agent of a lost Dask worker, and cancel its task, which would wait forever."""
        self._announced = {announcement for announcement in self._announced if announcement[0] != address}
        self._lost.add(address)
        self._briefs.pop(address, None)
        if (known := self._agents.pop(address, None)) is not None:
            self._context.spawn(self._peer.cancel([known[1]]))

    async def run(self) -> None:
        """Carry out queued commands until the run ends."""
        while True:
            orders = [await self._orders.get()]
            while not self._orders.empty():
                orders.append(self._orders.get_nowait())
            outgoing: dict[str, list[list[Any]]] = {}
            for kind, order in orders:
                if kind == "message":
                    address, message = order
                    if address in self._agents:
                        outgoing.setdefault(self._agents[address][0], []).append(message)
                    continue
                if kind == "agent":
                    await self._start_agent(order)
                elif kind == "free":
                    roles = [list(key) for key in order.roles]
                    await self._peer.ask("train_run_free", run=self._job.id, roles=roles)
                elif kind == "place":
                    self._placing[order.roles] = self._context.spawn(self._place(order)), order
            if outgoing:
                await self._peer.ask("train_run_post", run=self._job.id, messages=list(outgoing.items()))

    async def _start_agent(self, address: str) -> None:
        if address in self._agents:
            return
        name = f"agent-{uuid.uuid4().hex[:8]}"
        answer = await self._peer.ask("train_run_agent", run=self._job.id, agent=name, address=address)
        if (
            answer["status"] != "OK"
        ):  # it has left, which may have been reported before the driver knew that roles are there
            self._context.happened(WorkerLost(address=address))
            return
        versions = {"python": platform.python_version(), "dask_train": __version__}
        brief: Any = await self._brief_for(address)
        if len(brief) > LARGE_BYTES:
            try:
                brief = self._briefs[address] = await self._peer.put(
                    f"train-brief-{uuid.uuid4().hex}", brief, address=address
                )
            except (OSError, KeyError, ValueError):  # what Dask raises of a Dask worker that leaves meanwhile
                self._context.happened(WorkerLost(address=address))
                return
        future = self._peer.dask_end.submit(
            ByValue(agent_task.run_agent, agent_task),
            self._job.id,
            name,
            versions,
            brief,
            key=f"train-{name}-of-{self._job.id}",
            workers=[address],
            allow_other_workers=False,
            pure=False,
            priority=100,  # before the data tasks that wait for the same thread
        )
        self._agents[address] = (name, future)
        self._watching.add(asyncio.ensure_future(self._watch_agent(address, future)))

    async def _brief_for(self, address: str) -> bytes:
        """Return the brief of an agent, pickled, with functions' large arrays where it can't map them."""
        if not self._is_large:
            return pickle.dumps(self._brief)
        asking = self._peer.on_workers(reachable, list(self._lent.values()), workers=[address], on_error="ignore")
        answers: dict[str, bool] = {}
        with suppress(TimeoutError):  # it is busy
            answers = await asyncio.wait_for(asking, REACH_S)
        if not answers.get(address):
            return pickle.dumps(self._brief)
        assert self._context.history.letterbox is not None
        return pickle.dumps(replace(self._brief, functions=self._lent, letterbox=self._context.history.letterbox.place))

    async def _watch_agent(self, address: str, future: Future) -> None:
        try:
            has_told = await future
        except asyncio.CancelledError:
            return
        except Exception as error:
            if isinstance(error, CancelledError) and self._agents.get(address, ("", None))[1] is not future:
                return  # by worker_lost(); the error is Dask's own
            self._context.history.agent_errors[address] = error
            why = str(error) if isinstance(error, RuntimeError) else f"{type(error).__name__}: {error}"
            self._agent_ended(address, future, f"{why}.")
        else:
            self._forget_agent(address, future)
            if not has_told:
                self._agent_ended(address, future, "it was told to.")

    def _forget_agent(self, address: str, future: Future) -> None:
        """Forget an agent, so that the next role that starts on its Dask worker gets a new one."""
        if address in self._agents and self._agents[address][1] is future:
            del self._agents[address]
            self._announced = {announcement for announcement in self._announced if announcement[0] != address}

    def _agent_ended(self, address: str, future: Future, error: str) -> None:
        self._forget_agent(address, future)
        self._context.happened(events.AgentFailed(address=address, error=error))

    async def _place(self, command: commands.PlaceRoles) -> None:
        """Ask the scheduler to place roles until it has, or can't, or the command's timeout has passed."""
        deadline = time.monotonic() + command.timeout_s
        wanted = [[role, rank, self._job.needs.get(role, {})] for role, rank in command.roles]
        request = uuid.uuid4().hex
        problem, host = f"{self._wanted(command)} can't be placed", self._host_for(command)
        while True:
            left_s = deadline - time.monotonic()
            devices = await self._devices.request(self._job.run.on)
            if self._devices.waits_for and left_s > 0:  # else roles would be placed without a GPU
                self._waits_for(self._devices.waits_for)
                await asyncio.sleep(COME_POLL_S)
                continue
            answer = await self._peer.ask(
                "train_run_place",
                run=self._job.id,
                request=request,
                roles=wanted,
                on=self._job.run.on,
                timeout_s=max(0.0, min(PLACE_POLL_S, left_s)),
                host=host,
                devices=devices,
                shares_after_s=command.timeout_s * SHARES_AFTER,
            )
            status = answer["status"]
            if status == "OK":
                self._placed(command, answer)
                return
            if status == "gone":
                return
            if status == "waiting" and left_s > 0:
                self._waits_for(answer["why"])
                continue
            if status == "unknown":
                why = f"on= names {', '.join(answer['addresses'])}, and the Dask workers are {answer['known']}."
                change = "A restarted Dask worker comes back at a new address; see client.scheduler_info()."
            elif status == "never":
                why, change = f"{answer['why']}.", "Ask for less, or start Dask workers with more."
            else:
                why = answer["why"]
                problem = f"{self._wanted(command)} found no room within {command.timeout_s:g} s"
                change = "Wait for what uses the cluster, add Dask workers, or raise train.placement.timeout."
            roles = [list(key) for key in command.roles]
            await self._peer.ask("train_run_free", run=self._job.id, roles=roles)
            self._context.happened(events.NoRoom(wanted=f"{problem}.", why=why, change=change, roles=command.roles))
            return

    def _waits_for(self, why: str) -> None:
        self._context.waiting_for = why
        self._context.tell()

    def _host_for(self, command: commands.PlaceRoles) -> str:
        """Return the host on which roles must be placed; empty for any."""
        roles = self._context.state.roles
        if command.beside is not None:
            return self.host_of(roles[command.beside].address)
        if self._job.run.follows is None or not self._job.plan.one_host:
            return ""
        others = [role.address for key, role in roles.items() if key not in command.roles and role.phase in ALIVE]
        return next(filter(None, map(self.host_of, others)), "")

    def host_of(self, address: str) -> str:
        """Return the host of a Dask worker that has a role; empty for others."""
        return self._hosts.get(address, "")

    def _wanted(self, command: commands.PlaceRoles) -> str:
        if len(command.roles) == 1:
            return name_of(command.roles[0])
        return ", ".join(f"{role}={count}" for role, count in Counter(role for role, _ in command.roles).items())

    def _placed(self, command: commands.PlaceRoles, answer: dict[str, Any]) -> None:
        self._placing.pop(command.roles, None)
        self._hosts.update({address: host for _, _, address, host, _ in answer["places"]})
        self._devices.placed({(role, rank): device for role, rank, _, _, device in answer["places"]})
        places = {f"{role}/{rank}": address for role, rank, address, _, _ in answer["places"]}
        if answer["threads"] < len(places) and not self._has_said_sharing:
            self._has_said_sharing = True
            shared = f"{len(places)} roles share {answer['threads']} threads of the Dask cluster"
            say(f"{shared}.")
        self._context.happened(events.Placed(places=places))

    async def end(self, summary: dict[str, Any], timeout_s: float) -> None:
        """End the run in the scheduler, which ends the agents, and wait for them.

        Raises
        ------
        TimeoutError
            They have not ended within ``timeout_s``.
        RoleLostError
            The scheduler does not answer.
        """
        try:
            async with asyncio.timeout(timeout_s):
                await self._peer.ask("train_run_end", run=self._job.id, summary=summary)
                await asyncio.gather(*self._watching)
                await self._peer.cancel([future for _, future in self._agents.values()])
        finally:
            for watching in self._watching:
                watching.cancel()
            self._agents.clear()
            self._briefs.clear()
