"""The gang: room for all roles of a run or for none, in the order in which runs asked, given back by the run's end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from .devices import DeviceRequest, DeviceRoom
from .placement import Capacity, RolePlace, never, place, why_waiting
from .runs import Key, KnownRun, Runs
from .taken import lock, lock_user, unlock, why_taken

PLUGIN = "dask-train"

# Under this name we hold the MultiLock of a Dask worker's address for as long as it carries a role of any run, so that
# xgboost.dask and all else that takes these locks keeps away.
_LOCK = "train-roles-on-{}"


@dataclass
class PlacementRequest:
    """Room that a run waits for."""

    run: KnownRun
    roles: list[tuple[Key, dict[str, float]]]
    on: list[str] | None
    devices: DeviceRequest = field(default_factory=DeviceRequest)
    host: str = ""
    granted: dict[Key, str] = field(default_factory=dict)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    asked: float = field(default_factory=time.time)

    @property
    def needs(self) -> list[dict[str, float]]:
        return [need for _, need in self.roles]

    @property
    def with_device(self) -> list[bool]:
        return [role in self.devices.roles for (role, _), _ in self.roles]


class Gang:
    """Which run has which room, and which runs wait for some."""

    def __init__(self, scheduler: Any, runs: Runs) -> None:
        self.scheduler = scheduler
        self.runs = runs
        self.waiting: list[PlacementRequest] = []

    def capacities(self, on: list[str] | None, host: str = "") -> list[Capacity]:
        """Return the Dask workers as they are now, or those of ``on`` that are there; of that host, if one is named."""
        workers = self.scheduler.workers
        candidates = list(workers.values()) if on is None else [workers[a] for a in on if a in workers]
        found = []
        for ws in candidates:
            if host not in ("", ws.host):
                continue
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

        A run that starts lost roles again is first in line, and no other run is served between the room that it gives
        back for them and the room that it asks for; else the first one that waits would take its place.
        """
        capacities = self.capacities(request.on, request.host)
        if why := never(request.needs, capacities):
            return why
        num_devices = sum(request.with_device)
        if num_devices and capacities and (why := request.devices.never(num_devices, [c.address for c in capacities])):
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
            capacities = self.capacities(request.on, request.host)
            own = self._own(request, capacities) if request.run.shares else 0
            num_threads = sum(capacity.threads for capacity in capacities)
            room = self._device_room(request)
            found = place(request.needs, capacities, own=own, devices=room, with_device=request.with_device)
            if found is None:
                return
            self.waiting.pop(0)
            request.run.shares = request.run.shares or len(request.needs) + own > num_threads
            for (key, need), granted in zip(request.roles, found, strict=True):
                self._take(request.run, key, need, granted)
                request.granted[key] = granted.address
            request.run.placed = request.run.placed or time.time()
            request.changed.set()

    def _device_room(self, request: PlacementRequest) -> DeviceRoom:
        room = DeviceRoom(request.devices)
        for run in self.runs.by_id.values():
            for key, device in run.devices.items():
                room.in_use.setdefault(run.places[key][0], set()).add(device)
                if run is request.run:
                    room.num_roles[device] += 1
        others = [run for run in self.runs.by_id.values() if run is not request.run]
        return replace(room, held=frozenset(device for run in others for device in run.devices.values()))

    def why(self, request: PlacementRequest) -> str:
        """Return what a request waits for."""
        ahead = self.waiting.index(request) if request in self.waiting else 0
        text = why_waiting(request.needs, self.capacities(request.on, request.host), self._holders())
        if num_devices := sum(request.with_device):
            held = len(self._device_room(request).held)
            text += f" {num_devices} of them need a GPU, and {held} GPUs are used by other runs."
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

    def _take(self, run: KnownRun, key: Key, need: dict[str, float], granted: RolePlace) -> None:
        if not lock_user(self.scheduler, granted.address):
            lock(self.scheduler, [granted.address], _LOCK.format(granted.address))
        run.places[key] = (granted.address, need)
        if granted.device:
            run.devices[key] = granted.device

    def _own(self, request: PlacementRequest, capacities: list[Capacity]) -> int:
        """Return how many roles its run has in these capacities."""
        addresses = {capacity.address for capacity in capacities}
        return sum(address in addresses for address, _ in request.run.places.values())

    def free(self, run: KnownRun, keys: Iterable[Key] | None = None) -> None:
        """Give room back, all of a run's where ``keys`` is None, and forget its requests for it."""
        self._give_back(run, keys)
        self.serve()

    def _give_back(self, run: KnownRun, keys: Iterable[Key] | None) -> None:
        chosen = set(run.places if keys is None else keys)
        for request in [r for r in self.waiting if r.run is run and (keys is None or chosen & {k for k, _ in r.roles})]:
            self.waiting.remove(request)
            request.changed.set()
        left = {run.places.pop(key)[0] for key in chosen if key in run.places}
        run.devices = {key: device for key, device in run.devices.items() if key in run.places}
        for address in left - self.carrying():
            if lock_user(self.scheduler, address) == _LOCK.format(address):
                unlock(self.scheduler, _LOCK.format(address))

    def carrying(self) -> set[str]:
        """Return the Dask workers that carry a role of any run."""
        return {address for run in self.runs.by_id.values() for address, _ in run.places.values()}
