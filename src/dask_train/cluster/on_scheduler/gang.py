"""The gang: room for all roles of a run or for none, in the order in which runs asked, given back by the run's end."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from .networks import Networks
from .placement import Room, never, place, why_waiting
from .runs import Key, Run, Runs

# Under this name we hold the MultiLock of a Dask worker's address for as long as it carries a role of any run, so that
# xgboost.dask and networks of our own, which take the same locks, keep away.
_LOCK = "train-roles-on-{}"


@dataclass
class Wish:
    """Room that a run waits for."""

    run: Run
    roles: list[tuple[Key, dict[str, float]]]
    on: list[str] | None
    granted: dict[Key, str] = field(default_factory=dict)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def needs(self) -> list[dict[str, float]]:
        return [need for _, need in self.roles]


class Gang:
    """Who has which room, and who waits for some."""

    def __init__(self, scheduler: Any, networks: Networks, runs: Runs) -> None:
        self.scheduler = scheduler
        self.networks = networks
        self.runs = runs
        self.waiting: list[Wish] = []

    @property
    def _locks(self) -> Any:
        return self.scheduler.extensions["multi_locks"]

    def rooms(self, on: list[str] | None) -> list[Room]:
        """The Dask workers as they are now, or those of ``on`` that are there."""
        workers = self.scheduler.workers
        candidates = list(workers.values()) if on is None else [workers[a] for a in on if a in workers]
        found = []
        for ws in candidates:
            room = Room(ws.address, ws.host, ws.nthreads)
            room.declared = dict(ws.resources)
            room.resources = {name: total - ws.used_resources.get(name, 0) for name, total in ws.resources.items()}
            holders = self._locks.locks.get(ws.address) or []
            if holders and holders[0] != _LOCK.format(ws.address):
                room.why_not = self.networks.holder(holders[0])
            elif ws.address in self.networks.spent:
                room.why_not = "holds a TensorFlow server of a network that ended without a restart"
            elif ws.status.name != "running":
                percent = 100 * ws.metrics.get("memory", 0) / ws.memory_limit if ws.memory_limit else 0
                room.why_not = f"is {ws.status.name} (memory at {percent:.0f}%)"
            found.append(room)
        by_address = {room.address: room for room in found}
        for run in self.runs.by_id.values():
            for address, need in run.places.values():
                if address in by_address:
                    by_address[address].used += 1
                    left = by_address[address].resources
                    left.update((name, left.get(name, 0) - amount) for name, amount in need.items())
        return found

    def ask(self, wish: Wish) -> str:
        """Grant a wish now, or put it in line; why it can never be granted, or empty.

        A run that starts lost roles again is first in line, and nobody is served between the room that it gives back
        for them and the room that it asks for; else the first one that waits would take its place.
        """
        if why := never(wish.needs, self.rooms(wish.on)):
            return why
        goes_on = bool(wish.run.places)
        self._give_back(wish.run, [key for key, _ in wish.roles])
        if goes_on:
            self.waiting.insert(0, wish)
        else:
            self.waiting.append(wish)
        self.serve()
        return ""

    def serve(self) -> None:
        """Grant what fits, in order: a small run does not overtake a large one that waits."""
        while self.waiting:
            wish = self.waiting[0]
            rooms = self.rooms(wish.on)
            own = self._own(wish, rooms) if wish.run.shares else 0
            found = place(wish.needs, rooms, own=own)
            if found is None:
                return
            self.waiting.pop(0)
            wish.run.shares = wish.run.shares or len(wish.needs) + own > sum(room.threads for room in rooms)
            for (key, need), address in zip(wish.roles, found, strict=True):
                self._take(wish.run, key, need, address)
                wish.granted[key] = address
            wish.changed.set()

    def why(self, wish: Wish) -> str:
        """For what a wish waits."""
        ahead = self.waiting.index(wish) if wish in self.waiting else 0
        text = why_waiting(wish.needs, self.rooms(wish.on), self._holders())
        return text + (f" {ahead} other runs are first in line." if ahead else "")

    def _holders(self) -> dict[str, str]:
        holders: dict[str, list[str]] = {}
        for run in self.runs.by_id.values():
            for address, _ in run.places.values():
                holders.setdefault(address, []).append(run.id)
        return {
            address: f"carries {len(ids)} roles of {', '.join(sorted(set(ids)))}" for address, ids in holders.items()
        }

    def _take(self, run: Run, key: Key, need: dict[str, float], address: str) -> None:
        if not self._locks.locks.get(address):
            granted = self._locks._request_locks([address], _LOCK.format(address), 1)
            assert granted, "a free Dask worker's lock was held"
        run.places[key] = (address, need)

    def _own(self, wish: Wish, rooms: list[Room]) -> int:
        """How many roles its run has in these rooms."""
        addresses = {room.address for room in rooms}
        return sum(address in addresses for address, _ in wish.run.places.values())

    def free(self, run: Run, keys: Iterable[Key] | None = None) -> None:
        """Give room back, all of a run's where ``keys`` is None, and forget its wishes for it."""
        self._give_back(run, keys)
        self.serve()

    def _give_back(self, run: Run, keys: Iterable[Key] | None) -> None:
        chosen = set(run.places if keys is None else keys)
        for wish in [w for w in self.waiting if w.run is run and (keys is None or chosen & {k for k, _ in w.roles})]:
            self.waiting.remove(wish)
            wish.changed.set()
        left = {run.places.pop(key)[0] for key in chosen if key in run.places}
        for address in left - self.carrying():
            if (self._locks.locks.get(address) or [""])[0] == _LOCK.format(address):
                self._locks.release(_LOCK.format(address))

    def carrying(self) -> set[str]:
        """The Dask workers that carry a role of any run."""
        return {address for run in self.runs.by_id.values() for address, _ in run.places.values()}
