"""What drivers, agents and those who look may ask about runs; registered as handlers of the scheduler."""

from __future__ import annotations

import time
from typing import Any

from .boards import changed_within
from .gang import Gang, Wish
from .networks import Networks
from .runs import MAX_BEHIND, Key, Run, Runs

_GONE = {"status": "gone"}


class RunRequests:
    """The handlers; each method ``train_*`` is one."""

    def __init__(self, scheduler: Any, networks: Networks) -> None:
        self.scheduler = scheduler
        self.runs = Runs()
        self.gang = Gang(scheduler, networks, self.runs)
        self._wishes: dict[tuple[str, str], Wish] = {}

    # What the scheduler tells

    def worker_came(self) -> None:
        self.gang.serve()

    def worker_left(self, address: str) -> None:
        self.runs.worker_left(address)
        self.gang.serve()

    def client_left(self, client: str) -> None:
        for run in [run for run in self.runs.by_id.values() if run.client == client]:
            self._end(run, {"phase": "over", "outcome": "its client left"})

    # From drivers

    async def train_run_open(self, *, run: str, client: str, info: dict[str, Any]) -> dict[str, Any]:
        if client not in self.scheduler.clients:  # it left while it asked, and nobody would end the run
            return {"status": "no client"}
        self.runs.by_id[run] = Run(run, client, dict(info))
        return {"status": "OK"}

    async def train_run_place(
        self, *, run: str, wish: str, roles: list[Any], on: list[str] | None, timeout_s: float
    ) -> dict[str, Any]:
        """Room for roles, ``[role, rank, needs]``; asked again with the same ``wish`` until it is granted."""
        entry = self.runs.by_id.get(run)
        if entry is None:
            return _GONE
        known = self._wishes.get((run, wish))
        if known is None:
            if unknown := [address for address in on or () if address not in self.scheduler.workers]:
                return {"status": "unknown", "addresses": unknown, "known": list(self.scheduler.workers)}
            wanted = [((role, rank), dict(needs)) for role, rank, needs in roles]
            known = Wish(entry, wanted, None if on is None else list(on))
            if why := self.gang.ask(known):
                return {"status": "never", "why": why}
            self._wishes[run, wish] = known
        self.gang.serve()  # a MultiLock of another library may have been released, or a paused worker run again
        await changed_within(known.changed, timeout_s)
        if known.granted:
            self._wishes.pop((run, wish), None)
            threads = {ws.address: ws.nthreads for ws in self.scheduler.workers.values()}
            hosts = {ws.address: ws.host for ws in self.scheduler.workers.values()}
            places = [[role, rank, a, hosts.get(a, "")] for (role, rank), a in known.granted.items()]
            return {"status": "OK", "places": places, "threads": sum(threads.get(a, 0) for a in {p[2] for p in places})}
        if known.changed.is_set():  # freed before it was granted
            self._wishes.pop((run, wish), None)
            return _GONE
        return {"status": "waiting", "why": self.gang.why(known)}

    async def train_run_free(self, *, run: str, roles: list[Any]) -> dict[str, Any]:
        entry = self.runs.by_id.get(run)
        if entry is not None:
            self.gang.free(entry, [(role, rank) for role, rank in roles])
        return {"status": "OK"}

    async def train_run_agent(self, *, run: str, agent: str, address: str) -> dict[str, Any]:
        """An agent is about to be started on a Dask worker."""
        entry = self.runs.by_id.get(run)
        if entry is None or address not in self.scheduler.workers:
            return _GONE
        self.runs.add_agent(entry, agent, address)
        return {"status": "OK"}

    async def train_run_post(self, *, run: str, letters: list[Any]) -> dict[str, Any]:
        """Commands for agents, ``[agent, [command, ...]]``; those for agents that are gone are dropped."""
        entry = self.runs.by_id.get(run)
        for agent, commands in letters if entry is not None else ():
            if entry is not None and (inbox := entry.inboxes.get(agent)) is not None:
                inbox.put(list(commands))
        return {"status": "OK" if entry is not None else "gone"}

    async def train_run_note(self, *, run: str, summary: dict[str, Any]) -> dict[str, Any]:
        """What the driver says of the run now, for those who look."""
        entry = self.runs.by_id.get(run)
        if entry is not None:
            entry.summary = dict(summary)
        return {"status": "OK"}

    async def train_run_events(self, *, run: str, since: int, timeout_s: float) -> dict[str, Any]:
        """What agents and others told from number ``since`` on."""
        entry = self.runs.by_id.get(run)
        if entry is None:
            return _GONE
        entry.events.taken(since)
        if not entry.events.messages:
            await changed_within(entry.events.changed, timeout_s)
        return {"status": "OK" if not entry.over else "gone", "events": entry.events.since(since, MAX_BEHIND)}

    async def train_run_end(self, *, run: str, summary: dict[str, Any]) -> dict[str, Any]:
        entry = self.runs.by_id.get(run)
        if entry is not None:
            self._end(entry, summary)
        return {"status": "OK"}

    def _end(self, run: Run, summary: dict[str, Any]) -> None:
        self._wishes = {asked: wish for asked, wish in self._wishes.items() if wish.run is not run}
        self.gang.free(run)
        self.runs.end(run, dict(summary))
        self.gang.serve()

    # From agents

    async def train_run_next(self, *, run: str, agent: str, seen: int, timeout_s: float) -> dict[str, Any]:
        """The commands for an agent from number ``seen`` on, as soon as there are any."""
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
        self, *, run: str, agent: str, events: list[Any], output: list[Any], timeout_s: float
    ) -> dict[str, Any]:
        """Events of an agent's roles for the driver; ``output`` are the last lines of roles that have ended."""
        entry = self.runs.by_id.get(run) or next((r for r in self.runs.records if r.id == run), None)
        if entry is None:
            return _GONE
        for role, rank, attempt, end, data in output:
            entry.keep_output((role, rank), attempt, end, data)
        if entry.over or agent not in entry.inboxes:
            return _GONE
        entry.events.put(list(events))
        deadline = time.monotonic() + timeout_s
        while len(entry.events.messages) > MAX_BEHIND and not entry.over:
            if not await changed_within(entry.events.changed, deadline - time.monotonic()):
                break
        return {"status": "OK" if run in self.runs.by_id else "gone"}

    async def train_run_who_has(self, *, keys: list[Any]) -> dict[str, Any]:
        """Where these results lie now, or that they will never."""
        tasks = {key: self.scheduler.tasks.get(key) for key in keys}
        return {
            "status": "OK",
            "where": [[key, [ws.address for ws in task.who_has or ()]] for key, task in tasks.items() if task],
            "lost": [key for key, task in tasks.items() if task is None or task.state == "erred"],
        }

    # From anyone

    async def train_run_say(self, *, run: str, event: dict[str, Any]) -> dict[str, Any]:
        """A word to a run's driver, such as to stop, from whoever knows its name."""
        entry = self.runs.find(run)
        if entry is None:
            return self._unknown()
        if not entry.over:
            entry.events.put([{"time": time.time(), **event}])
        return {"status": "OK", **entry.report()}

    async def train_runs(self) -> dict[str, Any]:
        known = [*self.runs.records, *self.runs.by_id.values()]
        return {"status": "OK", "runs": [run.report() for run in known]}

    async def train_run_show(self, *, run: str, output: bool) -> dict[str, Any]:
        entry = self.runs.find(run)
        if entry is None:
            return self._unknown()
        kept = [[*key, *part] for key, parts in entry.output.items() for part in parts] if output else []
        return {"status": "OK", **entry.report(), "output": kept}

    def _unknown(self) -> dict[str, Any]:
        """No run has this name, or several begin so."""
        return {"status": "unknown", "runs": [run.id for run in (*self.runs.records, *self.runs.by_id.values())]}


__all__ = ["Key", "RunRequests"]
