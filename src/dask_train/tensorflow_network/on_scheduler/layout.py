"""Where data lies, and which Dask workers have room: a model of the cluster on which a restart is tried first."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

# Dask starts to spill at 0.60 of what it manages and pauses a worker at 0.80 of its limit; stay clear of the pause.
FILL_UP_TO = 0.7

# What a Dask worker's process takes when it has just started: 130 MB were measured with NumPy and pandas imported.
FRESH_PROCESS_BYTES = 200 * 2**20


@dataclass
class ClusterPicture:
    """What lies only on Dask workers that are to restart, and how much everyone can take.

    Attributes
    ----------
    size, holders
        Bytes of each key that lies only on those Dask workers, and which of them hold it.
    needed
        Those of the keys that Dask could not compute again.
    actors
        Keys of actors: they can be neither moved nor computed again.
    room, fresh
        Bytes that each running Dask worker can take now; and those that are to restart, after it.
    """

    size: dict[Any, int]
    holders: dict[Any, set[str]]
    needed: set[Any]
    actors: list[Any]
    room: dict[str, int]
    fresh: dict[str, int]

    @classmethod
    def of(cls, scheduler: Any, addresses: Collection[str]) -> ClusterPicture:
        """Return the picture if ``addresses`` restart; those that have died meanwhile hold and take nothing."""
        leaving = {address for address in addresses if address in scheduler.workers}
        tasks = only_on(scheduler, leaving)
        values = [task for task in tasks if not task.actor]
        return cls(
            size={task.key: task.get_nbytes() for task in values},
            holders={task.key: {ws.address for ws in task.who_has} for task in values},
            needed={task.key for task in values if not computable(task, leaving)},
            actors=[task.key for task in tasks if task.actor],
            room={ws.address: _room_bytes(ws.memory_limit, ws.memory.process) for ws in scheduler.running},
            fresh={a: _room_bytes(scheduler.workers[a].memory_limit, FRESH_PROCESS_BYTES) for a in leaving},
        )

    def only_on(self, wave: Collection[str]) -> list[Any]:
        """Return what lies on ``wave`` and nowhere else: what is needed first, and the largest first."""
        there = set(wave)
        keys = (key for key, holders in self.holders.items() if holders <= there)
        return sorted(keys, key=lambda key: (key not in self.needed, -self.size[key]))

    def shares(self, wave: Collection[str]) -> tuple[dict[str, list[Any]], list[Any]]:
        """Return the keys that each of the others takes, and the needed keys that fit nowhere.

        A key goes to the one that has the most room then.
        """
        room = {address: size for address, size in self.room.items() if address not in wave}
        shares: dict[str, list[Any]] = {}
        left = []
        for key in self.only_on(wave):
            target = max(room, key=room.__getitem__, default=None)
            if target is not None and self.size[key] <= room[target]:
                room[target] -= self.size[key]
                shares.setdefault(target, []).append(key)
            elif key in self.needed:
                left.append(key)
        return shares, left

    def next_wave(self, waiting: list[str]) -> list[str]:
        """Return as many of ``waiting`` as can be emptied and restart together: all, half, a quarter, one; or none."""
        size = len(waiting)
        while size:
            for start in range(0, len(waiting), size):
                wave = waiting[start : start + size]
                if not self.shares(wave)[1]:
                    return wave
            size //= 2
        return []

    def restarted(self, wave: Collection[str]) -> None:
        """Go on to the picture after ``wave`` was emptied and has restarted."""
        shares, _ = self.shares(wave)
        for target, keys in shares.items():
            self.room[target] -= sum(self.size[key] for key in keys)
            self.holders.update((key, {target}) for key in keys)
        for key in list(self.holders):
            self.holders[key] = self.holders[key].difference(wave)
            if not self.holders[key]:
                del self.holders[key]  # computed again, by a Dask worker that is there
        self.room.update((address, self.fresh[address]) for address in wave if address in self.fresh)


def only_on(scheduler: Any, addresses: Iterable[str]) -> list[Any]:
    """Return the tasks whose results lie on ``addresses`` and nowhere else."""
    members = {scheduler.workers[a] for a in addresses if a in scheduler.workers}
    tasks = {task for ws in members for task in ws.has_what}
    return [task for task in tasks if set(task.who_has) <= members]


def computable(task: Any, leaving: set[str]) -> bool:
    """Return whether Dask could compute ``task`` again once the Dask workers ``leaving`` are gone.

    It needs a recipe that is not pinned to them, and so do the inputs that no longer lie in memory elsewhere.
    """
    todo, seen = [task], set()
    while todo:
        task = todo.pop()
        if task in seen:
            continue
        seen.add(task)
        if task.run_spec is None or (task.worker_restrictions and task.worker_restrictions <= leaving):
            return False
        todo += [d for d in task.dependencies if not any(ws.address not in leaving for ws in d.who_has or ())]
    return True


def _room_bytes(limit: int, used: int) -> int:
    return max(0, int(limit * FILL_UP_TO - used)) if limit else 1 << 62
