"""A scheduler of plain objects, with Dask's own locks, for what runs take and give back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from distributed.multi_lock import MultiLockExtension


@dataclass
class FakeWorker:
    """A Dask worker, as the scheduler knows it."""

    address: str
    nthreads: int = 2
    host: str = "h"
    resources: dict[str, float] = field(default_factory=dict)
    used_resources: dict[str, float] = field(default_factory=dict)
    status: Any = field(default_factory=lambda: SimpleNamespace(name="running"))
    metrics: dict[str, int] = field(default_factory=dict)
    memory_limit: int = 100


class FakeScheduler:
    """Dask workers by name and number of threads; the client ``me`` is connected."""

    def __init__(self, **threads: int) -> None:
        self.workers = {name: FakeWorker(name, count) for name, count in threads.items()}
        self.clients: dict[str, None] = {"me": None}
        self.handlers: dict[str, Any] = {}
        self.tasks: dict[str, Any] = {}
        self.loop = SimpleNamespace(add_callback=lambda function: function())
        self.extensions = {"multi_locks": MultiLockExtension(self)}

    def add(self, name: str, threads: int) -> None:
        self.workers[name] = FakeWorker(name, threads)

    @property
    def locked(self) -> dict[str, list[str]]:
        """Who holds, and who waits for, the MultiLock of each Dask worker."""
        return {name: list(users) for name, users in self.extensions["multi_locks"].locks.items() if users}


@pytest.fixture(scope="session")
def a_scheduler() -> Callable[..., FakeScheduler]:
    """Makes schedulers: ``a_scheduler(a=2)`` has one Dask worker with two threads."""
    return FakeScheduler
