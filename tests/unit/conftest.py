"""What unit tests share: pools that have to be empty, data sets that are mapped from them, a scheduler, and ranks."""

from __future__ import annotations

import gc
import os
import resource
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, repeat
from types import SimpleNamespace
from typing import Any

import hypothesis
import numpy as np
import pytest
from distributed.multi_lock import MultiLockExtension

from dask_train.cluster import plugin
from dask_train.collectives import ProcessGroup
from dask_train.collectives.hosts import Hosts
from dask_train.collectives.rendezvous import meet
from dask_train.collectives.ring import Ring
from dask_train.data import pool as pool_module
from dask_train.data.borrowing import borrow
from dask_train.data.columns import Columns, column_of
from dask_train.data.pool import Pool
from dask_train.data.rows import Rows, held_by
from dask_train.data.segment import Segment
from dask_train.data.table import Table
from dask_train.frameworks.ports import hold_port
from dask_train.transport.connections import Credentials

# A busy machine is slow, which is no failure.
hypothesis.settings.register_profile("no deadline", deadline=None)
hypothesis.settings.load_profile("no deadline")


@contextmanager
def own_pool(keep_warm_s: float = 60.0) -> Iterator[Pool]:
    """A pool in which nothing may be left at the end, neither used nor locked."""
    pool = Pool(keep_warm_s)
    try:
        yield pool
        pool.trim()
        deadline = time.monotonic() + 30.0
        generations = chain((0, 1), repeat(2))  # most is found among what is new, without going through all modules
        generation = 0
        while pool.descriptor != -1 and time.monotonic() < deadline:
            generation = next(generations)
            if gc.collect(generation) == 0:
                time.sleep(0.01)  # a thread that was told to end may still read
            pool.trim()
        if generation == 2:
            gc.freeze()  # what has been imported since the last time is not gone through again
        assert (pool.used_bytes, pool.descriptor) == (0, -1), "all is freed, and nobody reads it any more"
    finally:
        if pool._trimmer is not None:
            pool._trimmer.cancel()
            pool._trimmer.join()


@contextmanager
def no_descriptors() -> Iterator[None]:
    """Let this process open no file, as one that has as many as it may have."""
    lowest = os.open(os.devnull, os.O_RDONLY)
    os.close(lowest)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.fixture(scope="session", name="no_descriptors")
def _no_descriptors() -> Callable[..., Any]:
    return no_descriptors


@pytest.fixture(scope="session", name="own_pool")
def _own_pool() -> Callable[..., Any]:
    return own_pool


@pytest.fixture(scope="module")
def plugins_by_name() -> Iterator[None]:
    """Plug-ins go to a scheduler in this process by name: those by value would put copies of code into our classes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plugin, "ByValue", lambda content, *_, **__: content)
        yield


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pool]:
    """The process's own pool, new for this test."""
    with own_pool() as made:
        monkeypatch.setattr(pool_module, "_pool", made)
        yield made


def table_of(parts: Sequence[Sequence[np.ndarray]], **settings: Any) -> Table:
    """A data set of these partitions, each a list of columns; all on the host of the only rank, unless told."""
    schema = Columns(
        columns=tuple(map(column_of, parts[0])),
        names=settings.pop("names", None),
        is_tuple=settings.pop("is_tuple", False),
    )
    settings = {"owner": np.zeros(len(parts), np.int64), "host_of_rank": np.zeros(1, np.int64)} | settings
    return Table(schema=schema, lengths=np.array([part[0].shape[0] for part in parts], np.int64), **settings)


@pytest.fixture(scope="session", name="table_of")
def _table_of() -> Callable[..., Table]:
    return table_of


def mapped(table: Table, segments: Mapping[int, Segment]) -> Rows:
    """Some partitions of a data set as a reader has them: mapped, with no descriptor left open."""
    by_pool: dict[int, list[int]] = {}
    for number, segment in segments.items():
        if segment.num_rows:
            by_pool.setdefault(segment.place.inode, []).append(number)
    descriptors = [borrow([segments[number].place for number in numbers]) for numbers in by_pool.values()]
    held = held_by(
        [(number, file, segments[number].place) for file, its in enumerate(by_pool.values()) for number in its],
        len(table.schema.columns),
    )
    try:
        return Rows(table.schema, table.lengths, held, descriptors)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


@pytest.fixture(scope="session", name="mapped")
def _mapped() -> Callable[..., Rows]:
    return mapped


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
    last_seen: float = field(default_factory=time.time)
    nanny: str = ""

    @property
    def name(self) -> str:
        return self.address


class FakeScheduler:
    """Dask workers by name and number of threads; the client ``me`` is connected."""

    def __init__(self, **threads: int) -> None:
        self.workers = {name: FakeWorker(name, count) for name, count in threads.items()}
        self.clients: dict[str, None] = {"me": None}
        self.wanted_by_tasks = 0
        self.handlers: dict[str, Any] = {"adaptive_target": lambda target_duration: self.wanted_by_tasks}
        self.plugins: dict[str, Any] = {}
        self.tasks: dict[str, Any] = {}
        self.loop = SimpleNamespace(add_callback=lambda function: function())
        self.released: dict[str, list[Any]] = {}
        self.extensions = {"multi_locks": MultiLockExtension(self)}

    def install(self, plugin: Any) -> Any:
        """Start a plug-in, as Dask does."""
        plugin.start(self)
        self.plugins[plugin.name] = plugin
        return plugin

    def add(self, name: str, threads: int) -> None:
        self.workers[name] = FakeWorker(name, threads)

    def client_releases_keys(self, keys: list[Any], client: str) -> None:
        self.released[client] = list(keys)

    async def remove_worker(self, address: str, stimulus_id: str) -> None:
        assert stimulus_id
        del self.workers[address]

    @property
    def locked(self) -> dict[str, list[str]]:
        """Who holds, and who waits for, the MultiLock of each Dask worker."""
        return {name: list(users) for name, users in self.extensions["multi_locks"].locks.items() if users}


@pytest.fixture(scope="session")
def a_scheduler() -> Callable[..., FakeScheduler]:
    """Makes schedulers: ``a_scheduler(a=2)`` has one Dask worker with two threads."""
    return FakeScheduler


@pytest.fixture
def on_each_rank(in_threads: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    """Calls a function with a rank and its group, in so many threads; what it returns in each.

    ``host_of`` names the host of each rank; by default all are on one.
    """

    def called(function: Callable[[int, ProcessGroup], Any], size: int, host_of: str = "") -> list[Any]:
        hosts = Hosts.of([f"{host}:{os.getpid()}-{rank}" for rank, host in enumerate(host_of or "a" * size)])
        with ExitStack() as stack:
            ports = [stack.enter_context(hold_port()).getsockname()[1] for _ in hosts.groups]
            ring = [f"127.0.0.1:{port}" for port in ports]

            def take_part(rank: int) -> Any:
                with ExitStack() as own:
                    across = None
                    if len(ring) > 1 and rank in hosts.leaders:
                        place = hosts.leaders.index(rank)
                        across = own.enter_context(closing(Ring(ring, place, Credentials(key=b"test"), 60.0)))
                    memory = meet(hosts, rank, b"test", 60.0)
                    return function(rank, own.enter_context(closing(ProcessGroup(hosts, rank, memory, across, 60.0))))

            return in_threads(*(partial(take_part, rank) for rank in range(size)))

    return called
