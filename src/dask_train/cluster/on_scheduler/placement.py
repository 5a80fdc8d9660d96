"""Where roles go: all or none, spread over the Dask workers first, then filled up to their threads. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

Needs = Mapping[str, float]


@dataclass
class Room:
    """One Dask worker as a place for role processes.

    ``used`` are the role processes that it carries, of all runs; ``resources`` what is left of those that it declares,
    ``declared`` all of them; ``why_not`` says why it takes none now, empty where it does.
    """

    address: str
    host: str
    threads: int
    used: int = 0
    resources: dict[str, float] = field(default_factory=dict)
    declared: dict[str, float] = field(default_factory=dict)
    why_not: str = ""

    def provides(self, needs: Needs) -> bool:
        return all(self.resources.get(name, 0) >= amount for name, amount in needs.items())

    def declares(self, needs: Needs) -> bool:
        return all(self.declared.get(name, 0) >= amount for name, amount in needs.items())


def place(needs: Sequence[Needs], rooms: Sequence[Room], *, own: int = 0) -> list[str] | None:
    """An address for each role, or None where they don't all fit now.

    A run with more roles than all these Dask workers have threads shares them, once they carry nothing else: four roles
    run on a laptop with two cores, but never beside another run's. ``own`` is how many roles of a run that shares are
    there already, when one of them starts again.
    """
    open_rooms = [replace(room, resources=dict(room.resources)) for room in rooms if not room.why_not]
    capacity = sum(room.threads for room in rooms)
    may_share = len(needs) + own > capacity and sum(room.used for room in rooms) == own
    per_host: dict[str, int] = {}
    for room in open_rooms:
        per_host[room.host] = per_host.get(room.host, 0) + room.used
    found = []
    for need in needs:
        fitting = [room for room in open_rooms if room.provides(need) and (may_share or room.used < room.threads)]
        if not fitting:
            return None
        chosen = min(
            fitting,
            key=lambda room: (room.used >= room.threads, room.used, per_host[room.host], -room.threads),
        )
        chosen.used += 1
        per_host[chosen.host] += 1
        for name, amount in need.items():
            chosen.resources[name] -= amount
        found.append(chosen.address)
    return found


def never(needs: Sequence[Needs], rooms: Sequence[Room]) -> str:
    """Why these Dask workers could not even take the roles while they are idle; empty where they could, or may come."""
    for need in needs:
        if rooms and not any(room.declares(need) for room in rooms):
            return f"no Dask worker declares {_said(need)}"
    for name in {name for need in needs for name in need}:
        wanted = sum(need.get(name, 0) for need in needs)
        declared = sum(room.declared.get(name, 0) for room in rooms)
        if rooms and wanted > declared:
            return f"the roles need {wanted:g} {name} in all, and the Dask workers declare {declared:g}"
    return ""


def why_waiting(needs: Sequence[Needs], rooms: Sequence[Room], holders: Mapping[str, str]) -> str:
    """For what a run waits, as a sentence; ``holders`` are who else uses which Dask worker."""
    if not rooms:
        return "There is no Dask worker."
    free = sum(max(0, room.threads - room.used) for room in rooms if not room.why_not)
    capacity = sum(room.threads for room in rooms)
    parts = [f"{len(needs)} roles need as many free threads, and {free} of {capacity} are free."]
    if len(needs) > capacity:
        parts = [f"{len(needs)} roles share {capacity} threads once nothing else uses them."]
    wanted = {name for need in needs for name in need}
    parts += [
        f"{sum(room.resources.get(name, 0) for room in rooms if not room.why_not):g} {name} left." for name in wanted
    ]
    parts += [f"{room.address} {room.why_not or holders[room.address]}." for room in rooms if _busy(room, holders)][:5]
    return " ".join(parts)


def _busy(room: Room, holders: Mapping[str, str]) -> bool:
    return bool(room.why_not or room.address in holders)


def _said(need: Needs) -> str:
    return ", ".join(f"{name}={amount:g}" for name, amount in need.items())
