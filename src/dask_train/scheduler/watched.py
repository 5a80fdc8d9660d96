"""A value that changes, and waiters for its change; and where results of Dask lie, for callers that wait for them.

Used at both ends, so without anything of dask-train.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import Any


@dataclass(eq=False)
class Watched:
    """Something that changes again and again.

    Attributes
    ----------
    changed
        Set with the next change, and then another one: a waiter checks again, and misses none that comes after
        its look.
    """

    changed: asyncio.Event = field(default_factory=asyncio.Event, init=False, repr=False)

    def wake(self) -> None:
        """Wake all waiters for a change."""
        self.changed.set()
        self.changed = asyncio.Event()


async def changed_within(event: asyncio.Event, timeout_s: float) -> bool:
    """Return whether ``event`` was set within ``timeout_s`` seconds."""
    if event.is_set():  # which wait_for does not look at where there is no time
        return True
    try:
        await asyncio.wait_for(event.wait(), timeout_s)
    except TimeoutError:
        return False
    return True


class Results:
    """The results of a scheduler's tasks."""

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        self._awaited: dict[Any, list[Watched]] = {}

    def changed(self, key: Any) -> None:
        """Wake the waiters of a task; called with each change of each task, so it must cost nothing."""
        for watched in self._awaited.get(key, ()):
            watched.wake()

    def where(self, keys: list[Any]) -> dict[str, Any]:
        """Return the addresses of each, and which of them will never lie anywhere."""
        tasks = {key: self._scheduler.tasks.get(key) for key in keys}
        return {
            "where": [[key, [ws.address for ws in task.who_has or ()]] for key, task in tasks.items() if task],
            "lost": [key for key, task in tasks.items() if task is None or task.state == "erred"],
        }

    async def once(self, keys: list[Any], some: bool, timeout_s: float) -> dict[str, Any]:
        """Do as :meth:`where`, once ``some`` of them lie anywhere or never will; or else once none does; or in time."""
        deadline = time.monotonic() + timeout_s
        watched = Watched()
        for key in keys:
            self._awaited.setdefault(key, []).append(watched)
        try:
            while True:
                locations = self.where(keys)
                lies = any(addresses for _, addresses in locations["where"])
                left_s = deadline - time.monotonic()
                if lies == some or (some and locations["lost"]) or left_s <= 0:
                    return locations
                await changed_within(watched.changed, left_s)
        finally:
            for key in keys:
                self._awaited[key].remove(watched)
                if not self._awaited[key]:
                    del self._awaited[key]
