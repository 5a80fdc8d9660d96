"""The placement queue: room for all roles of a run or for none, first come, first served; freed when the run ends."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from .devices import DeviceRequest, DeviceRoom
from .placement import Capacity, RolePlace, have_to_share, never, place, why_waiting
from .runs import Key, KnownRun, Runs
from .taken import lock, lock_user, unlock, why_taken

PLUGIN = "dask-train"
# The role whose number may change, as ``dask_train.run.resizing`` names it.
WORKER = "worker"

# Under this name we hold the MultiLock of a Dask worker's address for as long as it carries a role of any run, so that
# xgboost.dask and all else that takes these locks keeps away.
_LOCK = "train-roles-on-{}"


# What a Dask worker tells when it is retired, and when it closes.
LEAVING = ("closing_gracefully", "closing")


@dataclass
class PlacementRequest:
    """Room that a run waits for."""

    run: KnownRun
    roles: list[tuple[Key, dict[str, float]]]
    on: list[str] | None
    devices: DeviceRequest = field(default_factory=DeviceRequest)
    host: str = ""
    may_oversubscribe: bool = False  # its roles may take the threads of others of its run
    hosts: list[str] = field(default_factory=list)  # by role, where it is to be if there is room; empty for any
    before: list[str] = field(default_factory=list)  # by role, the Dask worker that it was on; empty for none
    shares_after_s: float = 0.0  # how long it waits for more Dask workers before its roles share threads
    granted: dict[Key, str] = field(default_factory=dict)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    asked: float = field(default_factory=time.time)

    @property
    def needs(self) -> list[dict[str, float]]:
        return [need for _, need in self.roles]

    @property
    def with_device(self) -> list[bool]:
        return [role in self.devices.roles for (role, _), _ in self.roles]


def is_leaving(ws: Any) -> bool:
    """Return whether a Dask worker is being retired, or closes."""
    return ws.status.name in LEAVING


class PlacementQueue:
    """Places roles of runs on Dask workers, and queues the requests that have to wait."""

    def __init__(self, scheduler: Any, runs: Runs) -> None:
        self.scheduler = scheduler
        self.runs = runs
        self.waiting: list[PlacementRequest] = []
        self.is_adaptive: Callable[[], bool] = lambda: False  # whether the cluster adds Dask workers by itself

    def capacities(self, on: list[str] | None, host: str = "") -> list[Capacity]:
        """Return the Dask workers as they are now, or those of ``on`` that are there; of that host, if one is named."""
        workers = self.scheduler.workers
        candidates = list(workers.values()) if on is None else [workers[a] for a in on if a in workers]
        capacities = []
        for ws in candidates:
            if host not in ("", ws.host):
                continue
            capacity = Capacity(ws.address, ws.host, ws.nthreads)
            capacity.declared = dict(ws.resources)
            capacity.resources = {name: total - ws.used_resources.get(name, 0) for name, total in ws.resources.items()}
            capacity.why_not = why_taken(self.scheduler, ws, asking=PLUGIN, own=_LOCK.format(ws.address))
            capacities.append(capacity)
        by_address = {capacity.address: capacity for capacity in capacities}
        for run in self.runs.by_id.values():
            for address, need in run.places.values():
                if address in by_address:
                    by_address[address].used += 1
                    left = by_address[address].resources
                    left.update((name, left.get(name, 0) - amount) for name, amount in need.items())
        return capacities

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
        # What is lost with a Dask worker that has left is replaced on those that are there.
        request.may_oversubscribe = request.run.in_place and any(key in request.run.places for key, _ in request.roles)
        if request.may_oversubscribe:
            request.hosts = [self._host_of(request.run, key) for key, _ in request.roles]
        nowhere = ("", None)
        request.before = [request.run.places.get(key, nowhere)[0] for key, _ in request.roles]
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
            places = next(filter(None, (self._placed(request, among) for among in self._choices(request))), None)
            if places is None:
                return
            self.waiting.pop(0)
            for (key, need), granted in zip(request.roles, places, strict=True):
                self._take(request.run, key, need, granted)
                request.granted[key] = granted.address
            request.run.placed = request.run.placed or time.time()
            request.changed.set()

    def _choices(self, request: PlacementRequest) -> list[list[Capacity]]:
        """Return the Dask workers among which there may be room, in order.

        A run that follows them takes those of one host, the one with most if it has none yet.
        """
        capacities = self.capacities(request.on, request.host)
        if not request.run.follows:
            return [capacities]
        by_host: dict[str, list[Capacity]] = {}
        for capacity in capacities:
            if not capacity.why_not:
                by_host.setdefault(capacity.host, []).append(capacity)
        choices = sorted(by_host.values(), key=len, reverse=True)
        large = [among for among in choices if sum(each.threads for each in among) >= len(request.needs)]
        return large or choices

    def _placed(self, request: PlacementRequest, capacities: list[Capacity]) -> list[RolePlace] | None:
        own = self._own(request, capacities) if request.run.is_oversubscribed or request.may_oversubscribe else 0
        room = self._device_room(request)
        wishes: dict[str, Any] = {"hosts": request.hosts, "before": request.before}
        if request.run.in_place:
            near = self._hosts_of(request.run)
            capacities = [replace(capacity, is_near=capacity.host in near) for capacity in capacities]
        wishes["may_share"] = not self._more_may_come(request)
        places = place(request.needs, capacities, own=own, devices=room, with_device=request.with_device, **wishes)
        if places is not None and len(request.needs) + own > sum(capacity.threads for capacity in capacities):
            request.run.is_oversubscribed = True
        return places

    def _more_may_come(self, request: PlacementRequest) -> bool:
        """Return whether an adaptive cluster may still add Dask workers for a request that has no places yet."""
        run = request.run
        is_new = not (run.places or run.is_oversubscribed or request.host) and request.on is None
        if not is_new or time.time() - request.asked > request.shares_after_s:
            return False
        if run.cluster_maximum is None:
            return self.is_adaptive()
        return len(self.scheduler.workers) < run.cluster_maximum

    def _host_of(self, run: KnownRun, key: Key) -> str:
        """Return the host of a role, also where its Dask worker has left; empty if there is none, or no other there."""
        if key not in run.places:
            return ""
        where = run.places[key][0].rpartition(":")[0]
        workers = self.scheduler.workers.values()
        return next((str(ws.host) for ws in workers if ws.address.rpartition(":")[0] == where), "")

    def _hosts_of(self, run: KnownRun) -> set[str]:
        """Return the hosts on which a run has roles; what its workers send each other there goes through memory."""
        workers = self.scheduler.workers
        return {str(workers[address].host) for address, _ in run.places.values() if address in workers}

    def num_places(
        self,
        run: KnownRun | None,
        needs: Mapping[str, float],
        on: list[str] | None,
        host: str = "",
        *,
        on_one_host: bool = True,
        beside: int = 0,
    ) -> int:
        """Count the Dask workers of a host that carry workers of a run, or could: of the one with most by default.

        While other runs wait for room, only those count that carry some. If not ``on_one_host``, those of all hosts
        count. Fewer are counted where ``beside`` other roles of a run to come would find no thread else.
        """
        places = {} if run is None else run.places
        own = {address for (role, _), (address, _) in places.items() if role == WORKER}
        is_wanted = any(request.run is not run for request in self.waiting)
        counts: dict[str, int] = {}
        by_host: dict[str, list[Capacity]] = {}
        for capacity in self.capacities(on, host):
            by_host.setdefault(capacity.host if on_one_host else "", []).append(capacity)
        for name, capacities in by_host.items():
            staying = sum(each.address in own and not self._is_leaving(each) for each in capacities)
            others = [each for each in capacities if each.address not in own]
            open_ones = [each for each in others if not (is_wanted or each.why_not) and each.used < each.threads]
            joining = sum(each.provides(needs) for each in open_ones)
            missing = beside - sum(each.threads - each.used for each in open_ones) + joining
            shares = have_to_share(joining + beside, capacities)
            counts[name] = staying + joining - (0 if shares else max(0, missing))
        return max(counts.values(), default=0)

    def _is_leaving(self, capacity: Capacity) -> bool:
        return is_leaving(self.scheduler.workers[capacity.address])

    def _device_room(self, request: PlacementRequest) -> DeviceRoom:
        room = DeviceRoom(request.devices)
        for run in self.runs.by_id.values():
            for key, device in run.devices.items():
                room.in_use.setdefault(run.places[key][0], set()).add(device)
                if run is request.run:
                    room.num_roles[device] += 1
        others = [run for run in self.runs.by_id.values() if run is not request.run]
        return replace(room, of_others=frozenset(device for run in others for device in run.devices.values()))

    def why(self, request: PlacementRequest) -> str:
        """Return what a request waits for."""
        ahead = self.waiting.index(request) if request in self.waiting else 0
        may_share = not self._more_may_come(request)
        text = why_waiting(request.needs, self.capacities(request.on, request.host), self._holders(), may_share)
        if num_devices := sum(request.with_device):
            num_used = len(self._device_room(request).of_others)
            text += f" {num_devices} of them need a GPU, and {num_used} GPUs are used by other runs."
        text += "" if may_share else " An adaptive cluster is asked for more Dask workers."
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
