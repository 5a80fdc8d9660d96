"""When the program that started the Dask workers looks after one that left.

``SpecCluster`` (``LocalCluster``, dask-jobqueue and others) looks some seconds after every loss whether a Dask
worker of that name is back, and else closes its nanny permanently. Where it looks while that worker restarts for
another reason, it closes a healthy one: 15 s after one network's close, in the middle of the next one's.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import dask.config
from dask.utils import parse_timedelta

# A restart takes about a second, and a few on a busy machine; no restart begins so shortly before a look.
RESTART_S = 5.0
# How much later than promised such a look may come.
LATE_S = 0.5


class LostWorkerChecks:
    """Dask workers that left, by name, and when they are looked after."""

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        self._names = {ws.address: ws.name for ws in scheduler.workers.values()}
        self._looks: dict[Any, list[float]] = defaultdict(list)

    def added(self, address: str) -> None:
        """Note that a Dask worker has come."""
        self._names[address] = self._scheduler.workers[address].name

    def removed(self, address: str) -> None:
        """Note that a Dask worker has left."""
        name = self._names.pop(address, None)
        # As the scheduler's process is configured, which may be another one than the cluster's.
        patience = dask.config.get("distributed.deploy.lost-worker-timeout", "15s")
        now = time.monotonic()
        self._looks[name] = [when for when in self._looks[name] if when + LATE_S > now]
        self._looks[name].append(now + parse_timedelta(patience))

    def quiet_in_s(self, addresses: Iterable[str]) -> float:
        """In how many seconds ``addresses`` can restart without being looked after meanwhile."""
        if "worker-status" not in self._scheduler.plugins:  # no plugin is called when a worker leaves
            return 0.0
        start = now = time.monotonic()
        for when in sorted(when for address in addresses for when in self._looks[self._names.get(address)]):
            if start - LATE_S < when < start + RESTART_S:
                start = when + LATE_S
        return start - now

    async def quiet(self, addresses: list[str]) -> None:
        """Wait until they can."""
        await asyncio.sleep(self.quiet_in_s(addresses))
