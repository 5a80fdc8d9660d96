"""Carries a driver's commands to the scheduler and to the agents, in order, and stands the agents up."""

from __future__ import annotations

import asyncio
import pickle
import platform
import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from distributed import Future
from distributed.protocol.pickle import dumps

from dask_train.cluster.extension import ByValue
from dask_train.cluster.on_worker import agent_task
from dask_train.cluster.on_worker.agent import Brief
from dask_train.run import commands, events
from dask_train.run.state import name_of
from dask_train.version import __version__

if TYPE_CHECKING:
    from dask_train.cluster.driver import Driver
    from dask_train.cluster.run_data import DataSetOnDask
    from dask_train.cluster.streaming import StreamOnDask

# How often a run that waits for room says for what.
PLACE_POLL_S = 1.0
# A brief that holds a model of more bytes than this goes to its Dask worker by itself: what is in a task's arguments
# stays with the scheduler for as long as the task runs.
LARGE_BYTES = 1 << 20
# How long agents are waited for when the run is over; their role processes are dead by then.
AGENTS_S = 10.0


class Dispatch:
    """See the module."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._job = driver.job
        self._peer = driver.peer
        self._orders: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()
        self._agents: dict[str, tuple[str, Future]] = {}  # by Dask worker
        self._briefs: dict[str, Future] = {}  # large ones, by Dask worker
        self._watching: set[asyncio.Task[None]] = set()
        self._hosts: dict[str, str] = {}
        self._told_of_sharing = False
        self._told: set[tuple[str, str, int]] = set()  # which agent knows which role's data set
        self._wishes: dict[tuple[commands.Key, ...], asyncio.Task[Any]] = {}
        plan = self._job.plan
        self._brief = pickle.dumps(
            Brief(
                run=self._job.id,
                counts=dict(plan.counts),
                functions=self._job.functions,
                framework=dumps(self._job.framework),  # one that is defined in a notebook goes by value
                checkpoint=self._job.checkpoint,
                patience_s=plan.progress_s,
                stop_s=plan.stop_s,
            )
        )

    def put(self, command: commands.Command) -> None:
        """Carry a command out, after those before."""
        if isinstance(command, commands.Place | commands.Free):
            for roles in [roles for roles in self._wishes if set(roles) & set(command.roles)]:
                self._wishes.pop(roles).cancel()
            self._orders.put_nowait(("place" if isinstance(command, commands.Place) else "free", command))
        elif isinstance(command, commands.OfRole):
            if isinstance(command, commands.Start) and command.address not in self._agents:
                self._orders.put_nowait(("agent", command.address))
            if isinstance(command, commands.Load):
                self._table(command.address, command.role, 0, self._driver.data.by_role[command.role])
            self._letter(command.address, self._worded(command))

    def _worded(self, command: commands.OfRole) -> dict[str, Any]:
        letter: dict[str, Any] = {"role": command.role, "rank": command.rank, "attempt": command.attempt}
        match command:
            case commands.Start():
                return {"op": "start", "roles_on_host": self._roles_on_host(command.address), **letter}
            case commands.Load():
                return {"op": "load", **letter}
            case commands.Go():
                return {"op": "go", "peers": self._peers(), "timeout_s": self._job.plan.rendezvous_s, **letter}
            case commands.AskToStop():
                return {"op": "stop", "reason": command.reason, **letter}
            case _:
                return {"op": "kill", **letter}

    def _letter(self, address: str, letter: dict[str, Any]) -> None:
        self._orders.put_nowait(("letter", (address, letter)))

    def _roles_on_host(self, address: str) -> int:
        host = self._hosts.get(address, address)
        roles = self._driver.state.roles.values()
        return Counter(self._hosts.get(role.address, role.address) for role in roles if role.address)[host] * (
            self._job.runs_on_host
        )

    def _peers(self) -> dict[str, list[str]]:
        peers: dict[str, list[str]] = {}
        for (role, _), member in self._driver.state.roles.items():
            peers.setdefault(role, []).append(member.peer)
        return peers if any(peer for found in peers.values() for peer in found) else {}

    def dataset(self, of_role: dict[str, Any], question: int, *, number: int = 0, error: str = "") -> None:
        """Answer a role's question for a published data set."""
        address = self._driver.state.roles[of_role["role"], of_role["rank"]].address
        if not error:
            self._table(address, of_role["role"], number, self._driver.data.opened(number))
        self._letter(address, {"op": "dataset", "dataset": number, "question": question, "error": error, **of_role})

    def value(self, key: commands.Key, value: bytes) -> None:
        """Bring a pickled value to a role that is there."""
        role = self._driver.state.roles[key]
        letter = {"op": "value", "role": key[0], "rank": key[1], "attempt": role.attempt, "value": value}
        self._letter(role.address, letter)

    def group(
        self,
        of_role: dict[str, Any],
        question: dict[str, Any],
        *,
        schema: bytes = b"",
        keys: list[tuple[int, Any]] | None = None,
        error: str = "",
    ) -> None:
        """Answer a role's question for a group of a data set that is streamed."""
        address = self._driver.state.roles[of_role["role"], of_role["rank"]].address
        letter = {"op": "group", "schema": schema, "keys": keys or [], "error": error}
        self._letter(address, {**letter, **question, **of_role})

    def _table(self, address: str, role: str, number: int, data: DataSetOnDask | StreamOnDask) -> None:
        """Tell an agent what a data set is, once; the placement of its rows stays for the run."""
        if (address, role, number) not in self._told:
            self._told.add((address, role, number))
            roles = self._driver.state.roles
            ranks = [roles[role, rank].address for rank in range(self._job.plan.counts[role])]
            self._letter(
                address,
                {"op": "table", "role": role, "dataset": number, "table": data.table(role, ranks), "keys": data.keys},
            )

    def diagnose(self, keys: Iterable[commands.Key]) -> None:
        """Ask for pictures of roles."""
        for key in keys:
            role = self._driver.state.roles[key]
            letter = {"op": "diagnose", "role": key[0], "rank": key[1], "attempt": role.attempt}
            self._letter(role.address, letter)

    def worker_lost(self, address: str) -> None:
        """Forget the agent of a Dask worker that is gone: its task would wait there for ever."""
        self._told = {told for told in self._told if told[0] != address}
        self._briefs.pop(address, None)
        if (known := self._agents.pop(address, None)) is not None:
            self._driver.spawn(self._peer.dask_end._cancel([known[1]]))

    async def run(self) -> None:
        """Carry out what was put, for as long as the run lasts."""
        while True:
            orders = [await self._orders.get()]
            while not self._orders.empty():
                orders.append(self._orders.get_nowait())
            letters: dict[str, list[dict[str, Any]]] = {}
            for kind, order in orders:
                if kind == "letter":
                    address, letter = order
                    if address in self._agents:
                        letters.setdefault(self._agents[address][0], []).append(letter)
                    continue
                if kind == "agent":
                    await self._start_agent(order)
                elif kind == "free":
                    roles = [list(key) for key in order.roles]
                    await self._peer.ask("train_run_free", run=self._job.id, roles=roles)
                elif kind == "place":
                    self._wishes[order.roles] = self._driver.spawn(self._place(order))
            if letters:
                await self._peer.ask("train_run_post", run=self._job.id, letters=list(letters.items()))

    async def _start_agent(self, address: str) -> None:
        if address in self._agents:
            return
        name = f"agent-{uuid.uuid4().hex[:8]}"
        answer = await self._peer.ask("train_run_agent", run=self._job.id, agent=name, address=address)
        if (
            answer["status"] != "OK"
        ):  # it has left, which may have been told before the driver knew that roles are there
            self._driver.happened(events.WorkerLost(time=time.time(), address=address))
            return
        versions = {"python": platform.python_version(), "dask_train": __version__}
        brief: Any = self._brief
        if len(brief) > LARGE_BYTES:
            brief = self._briefs[address] = await self._peer.put(
                f"train-brief-{uuid.uuid4().hex}", brief, address=address
            )
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

    async def _watch_agent(self, address: str, future: Future) -> None:
        try:
            await future
        except asyncio.CancelledError:
            return
        except Exception as error:
            self._driver.chronicle.driver_error = error
            why = str(error) if isinstance(error, RuntimeError) else f"{type(error).__name__}: {error}"
            self._driver.happened(events.AgentFailed(time=time.time(), address=address, error=f"{why}."))
        else:
            self._driver.happened(events.AgentFailed(time=time.time(), address=address, error="it was told to."))

    async def _place(self, command: commands.Place) -> None:
        """Wait for room, and say for what."""
        deadline = time.monotonic() + command.timeout_s
        wanted = [[role, rank, self._job.needs.get(role, {})] for role, rank in command.roles]
        wish = uuid.uuid4().hex
        asked = f"{self._wanted(command)} can't be placed"
        while True:
            left_s = deadline - time.monotonic()
            answer = await self._peer.ask(
                "train_run_place",
                run=self._job.id,
                wish=wish,
                roles=wanted,
                on=self._job.on,
                timeout_s=max(0.0, min(PLACE_POLL_S, left_s)),
            )
            status = answer["status"]
            if status == "OK":
                self._placed(command, answer)
                return
            if status == "gone":
                return
            if status == "waiting" and left_s > 0:
                self._driver.waiting_for = answer["why"]
                self._driver.tell()
                continue
            if status == "unknown":
                why = f"on= names {', '.join(answer['addresses'])}, and the Dask workers are {answer['known']}."
                change = "A restarted Dask worker comes back at a new address; see client.scheduler_info()."
            elif status == "never":
                why, change = f"{answer['why']}.", "Ask for less, or start Dask workers with more."
            else:
                why = answer["why"]
                asked = f"{self._wanted(command)} found no room within {command.timeout_s:g} s"
                change = "Wait for what uses the cluster, add Dask workers, or raise train.placement.timeout."
            roles = [list(key) for key in command.roles]
            await self._peer.ask("train_run_free", run=self._job.id, roles=roles)
            self._driver.happened(events.NoRoom(time=time.time(), wanted=f"{asked}.", why=why, change=change))
            return

    def _wanted(self, command: commands.Place) -> str:
        if len(command.roles) == 1:
            return name_of(command.roles[0])
        return ", ".join(f"{role}={count}" for role, count in Counter(role for role, _ in command.roles).items())

    def _placed(self, command: commands.Place, answer: dict[str, Any]) -> None:
        self._wishes.pop(command.roles, None)
        self._hosts.update({address: host for _, _, address, host in answer["places"]})
        places = {f"{role}/{rank}": address for role, rank, address, _ in answer["places"]}
        if answer["threads"] < len(places) and not self._told_of_sharing:
            self._told_of_sharing = True
            shared = f"{len(places)} roles share {answer['threads']} threads of the Dask cluster"
            sys.stderr.write(f"dask_train: {shared}.\n")
        self._driver.happened(events.Placed(time=time.time(), places=places))

    async def end(self, summary: dict[str, Any]) -> None:
        """End the run in the scheduler, which ends the agents, and wait for them."""
        try:
            async with asyncio.timeout(AGENTS_S):
                await self._peer.ask("train_run_end", run=self._job.id, summary=summary)
                await asyncio.gather(*self._watching)
                await self._peer.dask_end._cancel([future for _, future in self._agents.values()])
        finally:
            for watching in self._watching:
                watching.cancel()
            self._agents.clear()
            self._briefs.clear()
