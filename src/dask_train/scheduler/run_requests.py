"""What drivers, agents and other clients may ask about runs; registered as handlers of the scheduler."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Any

from .adaptive import AdaptiveTarget
from .computing import computes
from .devices import DeviceRequest
from .placement_queue import LEAVING, PlacementQueue, PlacementRequest
from .runs import MAX_BEHIND, KnownRun, Runs
from .watched import Results, Watched, changed_within

_GONE = {"status": "gone"}
# How often silent clients are looked for; a driver asks for events every 5 s.
LEASE_LOOK_S = 1.0
# How long a nanny may take to start a Dask worker again.
NANNY_S = 10.0
# How long agents may still tell how their roles have ended when their Dask worker has left in order. They are killed at
# once, so that takes some tens of milliseconds.
LAST_WORDS_S = 5.0


class RunRequests:
    """The handlers; each method ``train_*`` is one."""

    def __init__(self, scheduler: Any) -> None:
        self.scheduler = scheduler
        self.runs = Runs()
        self.placement_queue = PlacementQueue(scheduler, self.runs)
        self.adaptive_target = AdaptiveTarget(scheduler, self.placement_queue)
        self.results = Results(scheduler)
        self._moves = Watched()
        self._leaving: set[str] = set()
        self._requests: dict[tuple[str, str], PlacementRequest] = {}
        self._watching: asyncio.Task[None] | None = None
        self._restarting: set[asyncio.Task[None]] = set()

    # What the scheduler tells

    def worker_came(self) -> None:
        self._moves.wake()
        self.placement_queue.serve()

    def worker_changed(self, address: str, status: str) -> None:
        if status in LEAVING:
            self._leaving.add(address)
        else:
            self._leaving.discard(address)
        self._moves.wake()
        self.placement_queue.serve()

    def worker_left(self, address: str) -> None:
        in_order = address in self._leaving
        self._leaving.discard(address)
        for run in self.runs.by_id.values():
            agents = self.runs.agents_on(run, address)
            if in_order and run.in_place and set(agents) - run.finished:
                asyncio.get_running_loop().call_later(LAST_WORDS_S, self._agents_left, run, address, agents)
            else:
                self.runs.agents_left(run, address, agents)
        self._moves.wake()
        self.placement_queue.serve()

    def _agents_left(self, run: KnownRun, address: str, agents: list[str]) -> None:
        has_come_back = address in self.scheduler.workers  # another one at a fixed port, perhaps with roles of the run
        self.runs.agents_left(run, address, agents, is_news=not has_come_back)

    def client_left(self, client: str) -> None:
        for run in [run for run in self.runs.by_id.values() if run.client == client]:
            self._end(run, {"phase": "over", "outcome": "its client left"})

    async def _watch_clients(self) -> None:
        """End the runs of clients that are silent, though connected: stopped, suspended, or hanging.

        Time is counted while this scheduler runs: when it was stopped itself, clients could not reach it.
        """
        while self.runs.by_id:
            await asyncio.sleep(LEASE_LOOK_S)
            for run in list(self.runs.by_id.values()):
                run.silent_s += LEASE_LOOK_S
                if run.silent_s > run.lease_s:
                    why = f"nothing was heard of its client for {run.lease_s:g} s (train.client.timeout)"
                    self._end(run, {"phase": "over", "outcome": why})
                    self.scheduler.client_releases_keys(keys=run.keys, client=run.client)

    # From drivers

    async def train_run_open(
        self,
        *,
        run: str,
        client: str,
        info: dict[str, Any],
        lease_s: float,
        keys: list[Any],
        in_place: bool = False,
        follows: bool = False,
        cluster_maximum: float | None = None,
    ) -> dict[str, Any]:
        if client not in self.scheduler.clients:  # it left while it asked, and no one would end the run
            return {"status": "no client"}
        known = KnownRun(run, client, dict(info), lease_s=lease_s, keys=list(keys), in_place=in_place, follows=follows)
        known.cluster_maximum = cluster_maximum
        self.runs.by_id[run] = known
        self.runs.news(self.runs.by_id[run])
        if self._watching is None or self._watching.done():
            self._watching = asyncio.ensure_future(self._watch_clients())
        return {"status": "OK"}

    async def train_run_place(
        self,
        *,
        run: str,
        request: str,
        roles: list[Any],
        on: list[str] | None,
        timeout_s: float,
        devices: dict[str, Any] | None = None,
        host: str = "",
        shares_after_s: float = 0.0,
    ) -> dict[str, Any]:
        """Room for roles, ``[role, rank, needs]``; asked again with the same ``request`` until it is granted.

        Where a ``host`` is named, there and nowhere else. The first roles of a run share threads of an adaptive cluster
        only after ``shares_after_s``.

        ``devices`` are as :meth:`DeviceRequest.of <.devices.DeviceRequest.of>` reads them, with the offers of all Dask
        workers that the driver knows by now.
        """
        entry = self.runs.by_id.get(run)
        if entry is None:
            return _GONE
        known = self._requests.get((run, request))
        if known is None:
            if unknown := [address for address in on or () if address not in self.scheduler.workers]:
                return {"status": "unknown", "addresses": unknown, "known": list(self.scheduler.workers)}
            wanted = [((role, rank), dict(needs)) for role, rank, needs in roles]
            known = PlacementRequest(entry, wanted, None if on is None else list(on), DeviceRequest.of(devices), host)
            known.shares_after_s = shares_after_s
            if why := self.placement_queue.ask(known):
                return {"status": "never", "why": why}
            self._requests[run, request] = known
        elif devices is not None:  # Dask workers may have come since
            known.devices = DeviceRequest.of(devices)
        self.placement_queue.serve()  # a MultiLock may have been released, or a paused worker run again
        await changed_within(known.changed, timeout_s)
        if known.granted:
            self._requests.pop((run, request), None)
            threads = {ws.address: ws.nthreads for ws in self.scheduler.workers.values()}
            hosts = {ws.address: ws.host for ws in self.scheduler.workers.values()}
            places = [
                [role, rank, address, hosts.get(address, ""), entry.devices.get((role, rank), "")]
                for (role, rank), address in known.granted.items()
            ]
            return {"status": "OK", "places": places, "threads": sum(threads.get(a, 0) for a in {p[2] for p in places})}
        if known.changed.is_set():  # freed before it was granted
            self._requests.pop((run, request), None)
            return _GONE
        return {"status": "waiting", "why": self.placement_queue.why(known)}

    async def train_run_room(self, *, run: str, places: dict[str, Any], known: int, timeout_s: float) -> dict[str, Any]:
        """Count the Dask workers that carry roles of a run, or could; at once if they are not as many as ``known``.

        ``places`` are arguments of :meth:`.PlacementQueue.num_places`; ``run`` is empty for a run to come.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            entry = self.runs.by_id.get(run)
            if run and entry is None:
                return _GONE
            count = self.placement_queue.num_places(entry, **places)
            if count != known or not await changed_within(self._moves.changed, deadline - time.monotonic()):
                return {"status": "OK", "count": count}

    async def train_run_free(self, *, run: str, roles: list[Any]) -> dict[str, Any]:
        entry = self.runs.by_id.get(run)
        if entry is not None:
            self.placement_queue.free(entry, [(role, rank) for role, rank in roles])
            self._moves.wake()
        return {"status": "OK"}

    async def train_run_agent(self, *, run: str, agent: str, address: str) -> dict[str, Any]:
        """Note that an agent is about to be started on a Dask worker."""
        entry = self.runs.by_id.get(run)
        if entry is None or address not in self.scheduler.workers:
            return _GONE
        self.runs.add_agent(entry, agent, address)
        return {"status": "OK"}

    async def train_run_post(self, *, run: str, messages: list[Any]) -> dict[str, Any]:
        """Commands for agents, ``[agent, [command, ...]]``; those for agents that are gone are dropped."""
        entry = self.runs.by_id.get(run)
        for agent, commands in messages if entry is not None else ():
            if entry is not None and (inbox := entry.inboxes.get(agent)) is not None:
                inbox.put(list(commands))
        return {"status": "OK" if entry is not None else "gone"}

    async def train_run_note(self, *, run: str, summary: dict[str, Any]) -> dict[str, Any]:
        """Return what the driver says of the run now, for other clients."""
        entry = self.runs.by_id.get(run)
        if entry is not None:
            entry.summary = dict(summary)
            self.runs.news(entry)
        return {"status": "OK"}

    async def train_run_events(self, *, run: str, since: int, timeout_s: float, progress_s: float) -> dict[str, Any]:
        """Return reports from number ``since`` on; progress alone waits ``progress_s`` for more of it."""
        entry = self.runs.by_id.get(run)
        if entry is None:
            return _GONE
        entry.silent_s = 0.0
        entry.events.taken(since)
        if not entry.events.messages:
            await changed_within(entry.events.changed, timeout_s)
        deadline = time.monotonic() + progress_s
        while (left_s := deadline - time.monotonic()) > 0 and entry.has_progress_alone:
            await changed_within(entry.events.changed, left_s)
        return {"status": "OK" if not entry.over else "gone", "events": entry.events.since(since, MAX_BEHIND)}

    async def train_run_end(self, *, run: str, summary: dict[str, Any]) -> dict[str, Any]:
        entry = self.runs.by_id.get(run)
        if entry is not None:
            self._end(entry, summary)
        return {"status": "OK"}

    def _end(self, run: KnownRun, summary: dict[str, Any]) -> None:
        self._requests = {key: request for key, request in self._requests.items() if request.run is not run}
        self.placement_queue.free(run)
        self.runs.end(run, dict(summary))
        self.placement_queue.serve()
        self._moves.wake()

    # From agents

    async def train_run_next(self, *, run: str, agent: str, seen: int, timeout_s: float) -> dict[str, Any]:
        """Return the commands for an agent from number ``seen`` on, as soon as there are any."""
        entry = self.runs.by_id.get(run)
        inbox = None if entry is None else entry.inboxes.get(agent)
        if entry is None or inbox is None:
            return _GONE
        inbox.taken(seen)
        if not inbox.messages:
            await changed_within(inbox.changed, timeout_s)
        if entry.over or agent not in entry.inboxes:
            return _GONE
        return {"status": "OK", "commands": inbox.since(seen, MAX_BEHIND)}

    async def train_run_tell(
        self, *, run: str, agent: str, number: int, events: list[Any], output: list[Any], timeout_s: float
    ) -> dict[str, Any]:
        """Events of an agent's roles for the driver, from its number ``number`` on; those that have arrived before,
        with an answer that was lost, are left out. ``output`` are the last lines of roles that have ended.
        """
        entry = self.runs.by_id.get(run) or next((r for r in self.runs.records if r.id == run), None)
        if entry is None:
            return _GONE
        for role, rank, attempt, end, data in output:
            entry.keep_output((role, rank), attempt, end, data)
        if entry.over or agent not in entry.inboxes:
            return _GONE
        self.runs.news(entry, entry.take_events(agent, number, list(events)))
        deadline = time.monotonic() + timeout_s
        while len(entry.events.messages) > MAX_BEHIND and not entry.over:
            if not await changed_within(entry.events.changed, deadline - time.monotonic()):
                break
        return {"status": "OK" if run in self.runs.by_id else "gone"}

    async def train_run_agent_ends(self, *, run: str, agent: str) -> dict[str, Any]:
        """Note that an agent has told all, since its Dask worker leaves: the driver hears of that when it has left."""
        entry = self.runs.by_id.get(run)
        if entry is None or agent not in entry.agents:
            return _GONE
        entry.finished.add(agent)
        if (address := entry.agents[agent]) not in self.scheduler.workers:
            self._agents_left(entry, address, [agent])
        return {"status": "OK"}

    async def train_run_who_has(self, *, keys: list[Any], some: bool = True, timeout_s: float = 0.0) -> dict[str, Any]:
        """Return where these results lie, or that they will never; as soon as ``some`` do, or none does any more."""
        return {"status": "OK", **await self.results.once(keys, some, timeout_s)}

    async def train_run_computes(self, *, keys: list[Any]) -> dict[str, Any]:
        """Return whether Dask computes any of these."""
        return {"status": "OK", "computes": computes(self.scheduler, keys, time.time())}

    async def train_run_silent(self, *, addresses: list[str], silent_s: float) -> dict[str, Any]:
        """Take Dask workers out of the cluster whose agents are silent, if they have been for so long altogether.

        Dask would do so later (``distributed.scheduler.worker-ttl``, 5 minutes); until then it would have data computed
        and roles placed where no process answers.
        """
        known = [ws for address in addresses if (ws := self.scheduler.workers.get(address)) is not None]
        silent = [ws.address for ws in known if time.time() - ws.last_seen > silent_s]
        nannies = [nanny for address in silent if (nanny := self.scheduler.workers[address].nanny)]
        for address in silent:
            await self.scheduler.remove_worker(address, stimulus_id=f"train-silent-{time.time()}")
        for nanny in nannies:  # where only the process hangs, it is started again, and its role processes end
            restarting = asyncio.ensure_future(self._restart(nanny))
            self._restarting.add(restarting)
            restarting.add_done_callback(self._restarting.discard)
        return {"status": "OK", "removed": silent}

    async def _restart(self, nanny: str) -> None:
        with suppress(OSError):  # TimeoutError is one: its host is cut off
            asking = self.scheduler.rpc(nanny).restart(timeout=NANNY_S, reason="train-silent")
            await asyncio.wait_for(asking, 2 * NANNY_S)

    # From anyone

    async def train_run_say(self, *, run: str, event: list[Any]) -> dict[str, Any]:
        """Forward a message to a run's driver, such as to stop, from any client that knows its name."""
        entry = self.runs.find(run)
        if entry is None:
            return self._unknown()
        if not entry.over:
            entry.events.put([event])
        return {"status": "OK", **entry.report()}

    async def train_workers_came(self, *, timeout_s: float) -> dict[str, Any]:
        """Return whether there is a Dask worker, as soon as there is one."""
        if not self.scheduler.workers:
            await changed_within(self._moves.changed, timeout_s)
        return {"status": "OK", "some": bool(self.scheduler.workers)}

    async def train_runs(self) -> dict[str, Any]:
        known = [*self.runs.records, *self.runs.by_id.values()]
        return {"status": "OK", "runs": [run.report() for run in known]}

    async def train_run_show(self, *, run: str, output: bool) -> dict[str, Any]:
        entry = self.runs.find(run)
        if entry is None:
            return self._unknown()
        parts_by_key = [[*key, *part] for key, parts in entry.output.items() for part in parts] if output else []
        return {"status": "OK", **entry.report(), "output": parts_by_key}

    def _unknown(self) -> dict[str, Any]:
        """No run has this name, or several begin so."""
        return {"status": "unknown", "runs": [run.id for run in (*self.runs.records, *self.runs.by_id.values())]}
