"""Runs: their records, and the messages between a driver in a client and its agents on Dask workers.

The driver decides; here is only kept what it has decided. Events for it wait in a log until it has taken them, commands
for an agent in its inbox until it has. Values of users (results, functions) are bytes that are not unpickled here.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from .watched import Watched

# Records of runs that are over, for later readers.
KEPT_RECORDS = 50
# An agent is held back if its run's driver is this many events behind: a burst must not fill the scheduler's memory.
MAX_BEHIND = 500
# The most output of a role that is kept when it has ended, in bytes.
KEPT_OUTPUT = 64_000

Key = tuple[str, int]


def worker_lost(address: str) -> list[Any]:
    """Return the message that tells drivers of a lost Dask worker, as ``dask_train.process.messages`` reads it."""
    return ["WorkerLost", {"address": address}, None]


def stop_asked(reason: str) -> list[Any]:
    """Return the message with which anyone asks a driver to end its run in order, as the same module reads it."""
    return ["Stop", {"reason": reason}, None]


def diagnose(role: str, rank: int, attempt: int) -> list[Any]:
    """Return the command with which an agent is asked what a role does, as the same module reads it."""
    return ["Diagnose", {}, [role, rank, attempt]]


class Mailbox(Watched):
    """Numbered messages that wait until they are taken."""

    def __init__(self) -> None:
        super().__init__()
        self.first = 0
        self.messages: deque[Any] = deque()

    def put(self, messages: list[Any]) -> None:
        self.messages.extend(messages)
        self.wake()

    def taken(self, number: int) -> None:
        """Take note that all before ``number`` have arrived."""
        while self.first < number and self.messages:
            self.messages.popleft()
            self.first += 1
        self.wake()

    def since(self, number: int, most: int) -> list[Any]:
        start = max(0, number - self.first)
        return list(islice(self.messages, start, start + most))


@dataclass
class KnownRun:
    """One run: its driver, its last state, the places of its roles."""

    id: str
    client: str
    info: dict[str, Any]
    started: float = field(default_factory=time.time)
    placed: float = 0.0  # when its roles first had room
    ended: float = 0.0
    summary: dict[str, Any] = field(default_factory=dict)
    places: dict[Key, tuple[str, dict[str, float]]] = field(default_factory=dict)
    devices: dict[Key, str] = field(default_factory=dict)  # of the roles that were given one
    events: Mailbox = field(default_factory=Mailbox)
    inboxes: dict[str, Mailbox] = field(default_factory=dict)  # by agent
    agents: dict[str, str] = field(default_factory=dict)  # agent: Dask worker
    finished: set[str] = field(default_factory=set)  # agents that have told all, as their Dask worker leaves
    num_told: dict[str, int] = field(default_factory=dict)  # how many events have come of each agent
    output: dict[Key, list[tuple[int, int, bytes]]] = field(default_factory=dict)  # see keep_output
    lease_s: float = 300.0
    silent_s: float = 0.0  # how long nothing was heard of its client
    keys: list[Any] = field(default_factory=list)  # what is computed for it alone
    over: bool = False
    is_oversubscribed: bool = False  # it has more roles than there are threads
    follows: bool = False  # its number of workers follows the Dask workers of its host, on which all have to be
    in_place: bool = False  # lost roles are replaced while the others wait for them, or continue
    cluster_maximum: float | None = None  # the most Dask workers of its client's cluster if known, 0 if it adds none

    def take_events(self, agent: str, number: int, events: list[Any]) -> list[Any]:
        """Take over what is new of an agent's events, the first of which is its ``number``-th, from 0; what that is."""
        known = self.num_told.get(agent, 0)
        new = events[max(0, known - number) :]
        self.events.put(new)
        self.num_told[agent] = max(known, number + len(events))
        return new

    @property
    def has_progress_alone(self) -> bool:
        """Whether all that waits for its driver, which is not behind, is what roles do, as the same module names it."""
        waiting = self.events.messages
        return 0 < len(waiting) < MAX_BEHIND and all(name == "Progress" for name, *_ in waiting)

    def ask_to_stop(self, reason: str) -> None:
        """Ask its driver to end it in order."""
        if not self.over:
            self.events.put([stop_asked(reason)])

    def ask_for_stacks(self, key: Key, attempt: int) -> bool:
        """Ask a role's agent what its process does, which it tells among its events; whether there is an agent.

        The driver takes no part in it: it may be what hangs.
        """
        where = self.places.get(key, ("",))[0]
        agents = [agent for agent, address in self.agents.items() if address == where and agent in self.inboxes]
        if agents:
            self.inboxes[agents[-1]].put([diagnose(*key, attempt)])
        return bool(agents)

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


# Called with a run and the events that its agents have reported, if any; must not raise.
Observer = Callable[[KnownRun, Sequence[Any]], None]


class Runs:
    """All runs of a scheduler: live ones, and the records of the last that are over."""

    def __init__(self) -> None:
        self.by_id: dict[str, KnownRun] = {}
        self.records: deque[KnownRun] = deque(maxlen=KEPT_RECORDS)
        self.observers: list[Observer] = []

    def news(self, run: KnownRun, events: Sequence[Any] = ()) -> None:
        """Tell readers, such as a page of the dashboard, that a run has news, or is over."""
        for observer in self.observers:
            observer(run, events)

    def find(self, run: str) -> KnownRun | None:
        """Find a live run, or the record of one that is over, by its name or a unique beginning."""
        known = [*self.by_id.values(), *reversed(self.records)]
        exact = [entry for entry in known if entry.id == run]
        matches = exact[:1] or [entry for entry in known if entry.id.startswith(run)]
        return matches[0] if len(matches) == 1 else None

    def add_agent(self, run: KnownRun, agent: str, address: str) -> None:
        """Note that an agent is about to start; what is posted to it waits for it."""
        run.agents[agent] = address
        run.inboxes[agent] = Mailbox()

    def end(self, run: KnownRun, summary: dict[str, Any]) -> None:
        """End the run: its agents end, its record stays."""
        if run.over:
            return
        run.over = True
        run.ended = time.time()
        run.summary = {**run.summary, **summary}
        del self.by_id[run.id]
        self.records.append(run)
        events, run.events = run.events, Mailbox()
        events.wake()
        for inbox in run.inboxes.values():
            inbox.wake()
        run.inboxes = {}
        self.news(run)

    def agents_on(self, run: KnownRun, address: str) -> list[str]:
        """Return the agents of a run on a Dask worker."""
        return [agent for agent, where in run.agents.items() if where == address]

    def agents_left(self, run: KnownRun, address: str, agents: Sequence[str], *, is_news: bool = True) -> None:
        """Tell a driver whose roles, or agents, were on a Dask worker; these agents are not listened to any more."""
        known = [agent for agent in agents if run.agents.pop(agent, None) is not None]
        for agent in known:
            if (inbox := run.inboxes.pop(agent, None)) is not None:
                inbox.wake()
        if is_news and not run.over and (known or any(where == address for where, _ in run.places.values())):
            run.events.put([worker_lost(address)])
