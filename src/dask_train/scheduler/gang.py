"""The gang: room for all roles of a run or for none, in the order in which runs asked, given back by the run's end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from .placement import Capacity, never, place, why_waiting
from .runs import Key, Run, Runs
from .taken import lock, lock_user, unlock, why_taken

PLUGIN = "dask-train"

# Under this name we hold the MultiLock of a Dask worker's address for as long as it carries a role of any run, so that
# xgboost.dask and all else that takes these locks keeps away.
_LOCK = "train-roles-on-{}"


@dataclass
class PlacementRequest:
    """Room that a run waits for."""

    run: Run
    roles: list[tuple[Key, dict[str, float]]]
    on: list[str] | None
    granted: dict[Key, str] = field(default_factory=dict)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    asked: float = field(default_factory=time.time)

    @property
    def needs(self) -> list[dict[str, float]]:
        return [need for _, need in self.roles]


class Gang:
    """Who has which room, and who waits for some."""

    def __init__(self, scheduler: Any, runs: Runs) -> None:
        self.scheduler = scheduler
        self.runs = runs
        self.waiting: list[PlacementRequest] = []

    def capacities(self, on: list[str] | None) -> list[Capacity]:
        """The Dask workers as they are now, or those of ``on`` that are there."""
        workers = self.scheduler.workers
        candidates = list(workers.values()) if on is None else [workers[a] for a in on if a in workers]
        found = []
        for ws in candidates:
            capacity = Capacity(ws.address, ws.host, ws.nthreads)
            capacity.declared = dict(ws.resources)
            capacity.resources = {name: total - ws.used_resources.get(name, 0) for name, total in ws.resources.items()}
            capacity.why_not = why_taken(self.scheduler, ws, asking=PLUGIN, own=_LOCK.format(ws.address))
            found.append(capacity)
        by_address = {capacity.address: capacity for capacity in found}
        for run in self.runs.by_id.values():
            for address, need in run.places.values():
                if address in by_address:
                    by_address[address].used += 1
                    left = by_address[address].resources
                    left.update((name, left.get(name, 0) - amount) for name, amount in need.items())
        return found

    def ask(self, request: PlacementRequest) -> str:
        """Grant a request now, or put it in line; why it can never be granted, or empty.

        A run that starts lost roles again is first in line, and nobody is served between the room that it gives back
        for them and the room that it asks for; else the first one that waits would take its place.
        """
        if why := never(request.needs, self.capacities(request.on)):
            return why
        goes_on = bool(request.run.places)
        self._give_back(request.run, [key for key, _ in request.roles])
        if goes_on:
            self.waiting.insert(0, request)
        else:
            self.waiting.append(request)
        self.serve()
        return ""

    def serve(self) -> None:
        """Grant what fits, in order: a small run does not overtake a large one that waits."""
        while self.waiting:
            request = self.waiting[0]
            capacities = self.capacities(request.on)
            own = self._own(request, capacities) if request.run.shares else 0
            num_threads = sum(capacity.threads for capacity in capacities)
            found = place(request.needs, capacities, own=own)
            if found is None:
                return
            self.waiting.pop(0)
            request.run.shares = request.run.shares or len(request.needs) + own > num_threads
            for (key, need), address in zip(request.roles, found, strict=True):
                self._take(request.run, key, need, address)
                request.granted[key] = address
            request.run.placed = request.run.placed or time.time()
            request.changed.set()

    def why(self, request: PlacementRequest) -> str:
        """For what a request waits."""
        ahead = self.waiting.index(request) if request in self.waiting else 0
        text = why_waiting(request.needs, self.capacities(request.on), self._holders())
        return text + (f" {ahead} other runs are first in line." if ahead else "")

    def _holders(self) -> dict[str, str]:
        holders: dict[str, list[str]] = {}
        for run in self.runs.by_id.values():
            for address, _ in run.places.values():
                holders.setdefault(address, []).append(run.id)
        return {
            address: f"carries {len(ids)} role{'s'[: len(ids) > 1]} of {', '.join(sorted(set(ids)))}"
            for address, ids in holders.items()
        }

    def _take(self, run: Run, key: Key, need: dict[str, float], address: str) -> None:
        if not lock_user(self.scheduler, address):
            lock(self.scheduler, [address], _LOCK.format(address))
        run.places[key] = (address, need)

    def _own(self, request: PlacementRequest, capacities: list[Capacity]) -> int:
        """How many roles its run has in these capacities."""
        addresses = {capacity.address for capacity in capacities}
        return sum(address in addresses for address, _ in request.run.places.values())

    def free(self, run: Run, keys: Iterable[Key] | None = None) -> None:
        """Give room back, all of a run's where ``keys`` is None, and forget its requests for it."""
        self._give_back(run, keys)
        self.serve()

    def _give_back(self, run: Run, keys: Iterable[Key] | None) -> None:
        chosen = set(run.places if keys is None else keys)
        for request in [r for r in self.waiting if r.run is run and (keys is None or chosen & {k for k, _ in r.roles})]:
            self.waiting.remove(request)
            request.changed.set()
        left = {run.places.pop(key)[0] for key in chosen if key in run.places}
        for address in left - self.carrying():
            if lock_user(self.scheduler, address) == _LOCK.format(address):
                unlock(self.scheduler, _LOCK.format(address))

    def carrying(self) -> set[str]:
        """The Dask workers that carry a role of any run."""
        return {address for run in self.runs.by_id.values() for address, _ in run.places.values()}
