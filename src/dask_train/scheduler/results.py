"""Where results of Dask lie, for callers that wait until they are there."""

from __future__ import annotations

import time
from typing import Any

from .watched import Watched, changed_within


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
