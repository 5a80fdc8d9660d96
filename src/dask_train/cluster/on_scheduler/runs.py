"""Runs: their records, and the post between a driver in a client and its agents on Dask workers.

The driver decides; here is only kept what it has decided. Events for it wait in a log until it has taken them, commands
for an agent in its inbox until it has. Values of users (results, functions) are bytes that nobody here unpickles.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

# Records of runs that are over, for those who look later.
KEPT_RECORDS = 50
# An agent whose run's driver is so many events behind is held back, so that a burst can't fill the scheduler's memory.
MAX_BEHIND = 500
# The most output of a role that is kept when it has ended, in bytes.
KEPT_OUTPUT = 64_000

Key = tuple[str, int]


class Post:
    """Numbered messages that wait until they are taken."""

    def __init__(self) -> None:
        self.first = 0
        self.messages: deque[Any] = deque()
        self.changed = asyncio.Event()

    def put(self, messages: list[Any]) -> None:
        self.messages.extend(messages)
        self.wake()

    def taken(self, number: int) -> None:
        """All before ``number`` have arrived."""
        while self.first < number and self.messages:
            self.messages.popleft()
            self.first += 1
        self.wake()

    def since(self, number: int, most: int) -> list[Any]:
        start = max(0, number - self.first)
        return list(islice(self.messages, start, start + most))

    def wake(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()


@dataclass
class Run:
    """One run: who drives it, what it said last of itself, where its roles are."""

    id: str
    client: str
    info: dict[str, Any]
    started: float = field(default_factory=time.time)
    ended: float = 0.0
    summary: dict[str, Any] = field(default_factory=dict)
    places: dict[Key, tuple[str, dict[str, float]]] = field(default_factory=dict)
    events: Post = field(default_factory=Post)
    inboxes: dict[str, Post] = field(default_factory=dict)  # by agent
    agents: dict[str, str] = field(default_factory=dict)  # agent: Dask worker
    output: dict[Key, list[tuple[int, int, bytes]]] = field(default_factory=dict)  # see keep_output
    over: bool = False
    shares: bool = False  # it has more roles than there are threads

    def keep_output(self, key: Key, attempt: int, end: int, data: bytes) -> None:
        """Keep what an attempt of a role printed last, up to byte ``end`` of it; what comes again replaces the first.

        The newest attempts come first where not all have room.
        """
        known = {part[0]: part for part in self.output.get(key, ())} | {attempt: (attempt, end, data)}
        room = KEPT_OUTPUT
        self.output[key] = []
        for number in sorted(known, reverse=True):
            _, end, data = known[number]
            if room > 0:
                self.output[key].insert(0, (number, end, data[-room:]))
            room -= len(data)

    def report(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "client": self.client,
            "started": self.started,
            "ended": self.ended,
            "now": time.time(),  # by this clock, as the two above
            "info": self.info,
            "summary": self.summary,
            "places": [[role, rank, address] for (role, rank), (address, _) in self.places.items()],
            "agents": list(self.agents.items()),
        }


class Runs:
    """All runs of a scheduler: those that go on, and the records of the last that are over."""

    def __init__(self) -> None:
        self.by_id: dict[str, Run] = {}
        self.records: deque[Run] = deque(maxlen=KEPT_RECORDS)

    def find(self, run: str) -> Run | None:
        """A run that goes on, or the record of one that is over, by its name or a beginning that no other has."""
        known = [*self.by_id.values(), *reversed(self.records)]
        exact = [entry for entry in known if entry.id == run]
        found = exact[:1] or [entry for entry in known if entry.id.startswith(run)]
        return found[0] if len(found) == 1 else None

    def add_agent(self, run: Run, agent: str, address: str) -> None:
        """An agent is about to start; what is posted to it waits for it."""
        run.agents[agent] = address
        run.inboxes[agent] = Post()

    def end(self, run: Run, summary: dict[str, Any]) -> None:
        """The run is over: its agents end, its record stays."""
        if run.over:
            return
        run.over = True
        run.ended = time.time()
        run.summary = {**run.summary, **summary}
        del self.by_id[run.id]
        self.records.append(run)
        told, run.events = run.events, Post()
        told.wake()
        for inbox in run.inboxes.values():
            inbox.wake()
        run.inboxes = {}

    def worker_left(self, address: str) -> None:
        """Tell the drivers whose roles, or agents, were there; its agents are not listened to any more."""
        for run in self.by_id.values():
            lost = [agent for agent, where in run.agents.items() if where == address]
            for agent in lost:
                del run.agents[agent]
                run.inboxes.pop(agent).wake()
            if lost or any(where == address for where, _ in run.places.values()):
                run.events.put([{"kind": "worker lost", "address": address, "time": time.time()}])
