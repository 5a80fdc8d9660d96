"""Where roles go: all or none, spread over the Dask workers first, then filled up to their threads. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from .devices import DeviceRoom

Needs = Mapping[str, float]


class RolePlace(NamedTuple):
    """Where a role goes: a Dask worker's address, and the device that it gets there, empty for none."""

    address: str
    device: str = ""


@dataclass
class Capacity:
    """One Dask worker as a place for role processes.

    ``used`` are the role processes that it carries, of all runs; ``resources`` what is left of those that it declares,
    ``declared`` all of them; ``why_not`` says why it takes none now, empty if it does. One that ``is_near`` is on a
    host of the run that asks: it is preferred among those that carry as many roles.
    """

    address: str
    host: str
    threads: int
    used: int = 0
    resources: dict[str, float] = field(default_factory=dict)
    declared: dict[str, float] = field(default_factory=dict)
    why_not: str = ""
    is_near: bool = False

    def provides(self, needs: Needs) -> bool:
        return all(self.resources.get(name, 0) >= amount for name, amount in needs.items())

    def declares(self, needs: Needs) -> bool:
        return all(self.declared.get(name, 0) >= amount for name, amount in needs.items())


def place(
    needs: Sequence[Needs],
    workers: Sequence[Capacity],
    *,
    own: int = 0,
    devices: DeviceRoom | None = None,
    with_device: Sequence[bool] = (),
    hosts: Sequence[str] = (),
    before: Sequence[str] = (),
    may_share: bool = True,
) -> list[RolePlace] | None:
    """Find a place for each role, or return None if they don't all fit now.

    A run with more roles than all these Dask workers have threads shares them, once they carry nothing else: four roles
    run on a laptop with two cores, but never next to another run's. ``own`` is how many roles of a run that shares are
    there already, when one of them starts again. ``with_device`` says of each role whether it gets one of ``devices``,
    and ``hosts`` on which host it is to be if a thread is free there; empty for any. Of Dask workers that are as good a
    role gets the one that it was on ``before``: what it has kept there is at hand. Nothing shares a thread unless it
    ``may_share``.
    """
    open_workers = [replace(worker, resources=dict(worker.resources)) for worker in workers if not worker.why_not]
    shares = may_share and have_to_share(len(needs), workers, own)
    per_host: dict[str, int] = {}
    for worker in open_workers:
        per_host[worker.host] = per_host.get(worker.host, 0) + worker.used
    room = DeviceRoom() if devices is None else devices.copy()
    places = []
    unknown = [""] * len(needs)
    wanted = zip(needs, with_device or [False] * len(needs), hosts or unknown, before or unknown, strict=True)
    for need, needs_device, host, last in wanted:
        fitting = [
            worker for worker in open_workers if worker.provides(need) and (shares or worker.used < worker.threads)
        ]
        choices = {worker.address: room.choice(worker.address) for worker in fitting if needs_device}
        if needs_device:
            fitting = [worker for worker in fitting if choices[worker.address]]
        if not fitting:
            return None
        chosen = min(
            fitting,
            key=lambda worker: (
                room.num_roles[choices.get(worker.address, "")],
                worker.used >= worker.threads,
                host not in ("", worker.host),
                worker.used,
                not worker.is_near,
                per_host[worker.host],
                -worker.threads,
                last not in ("", worker.address),
            ),
        )
        chosen.used += 1
        per_host[chosen.host] += 1
        for name, amount in need.items():
            chosen.resources[name] = chosen.resources.get(name, 0.0) - amount
        device = choices.get(chosen.address, "")
        if device:
            room.take(chosen.address, device)
        places.append(RolePlace(chosen.address, device))
    return places


def have_to_share(num_roles: int, workers: Sequence[Capacity], own: int = 0) -> bool:
    """Return whether so many roles more would share threads: there are not as many, and no other run uses any."""
    num_threads = sum(worker.threads for worker in workers)
    return num_roles + own > num_threads and sum(worker.used for worker in workers) == own


def never(needs: Sequence[Needs], workers: Sequence[Capacity]) -> str:
    """Return why these Dask workers could not even take the roles while they are idle.

    Empty if they could, or may come.
    """
    for need in needs:
        if workers and not any(worker.declares(need) for worker in workers):
            return f"no Dask worker declares {_said(need)}"
    for name in {name for need in needs for name in need}:
        wanted = sum(need.get(name, 0) for need in needs)
        declared = sum(worker.declared.get(name, 0) for worker in workers)
        if workers and wanted > declared:
            return f"the roles need {wanted:g} {name} in all, and the Dask workers declare {declared:g}"
    return ""


def why_waiting(
    needs: Sequence[Needs], workers: Sequence[Capacity], holders: Mapping[str, str], may_share: bool = True
) -> str:
    """Return what a run waits for, as a sentence; ``holders`` are the other users of each Dask worker."""
    if not workers:
        return "There is no Dask worker."
    free = sum(max(0, worker.threads - worker.used) for worker in workers if not worker.why_not)
    num_threads = sum(worker.threads for worker in workers)
    what = "1 role needs a free thread" if len(needs) == 1 else f"{len(needs)} roles need as many free threads"
    parts = [f"{what}, and {free} of {num_threads} are free."]
    if may_share and len(needs) > num_threads:
        parts = [f"{len(needs)} roles share {num_threads} threads once nothing else uses them."]
    wanted = {name for need in needs for name in need}
    parts += [
        f"{sum(worker.resources.get(name, 0) for worker in workers if not worker.why_not):g} {name} left."
        for name in wanted
    ]
    parts += [
        f"{worker.address} {worker.why_not or holders[worker.address]}."
        for worker in workers
        if worker.why_not or worker.address in holders
    ][:5]
    return " ".join(parts)


def _said(need: Needs) -> str:
    return ", ".join(f"{name}={amount:g}" for name, amount in need.items())
