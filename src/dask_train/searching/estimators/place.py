"""Where a search over estimators is done: a cluster with the data in shared memory, and processes that do the work."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from dask_train.cluster.clients import client_or_local
from dask_train.cluster.peer import Peer
from dask_train.fitting.data import FitData, check_some_rows
from dask_train.frameworks.registry import find_framework
from dask_train.searching.estimators.loop import EstimatorLoop
from dask_train.searching.pool import Crew, Slots, Work
from dask_train.searching.room import capacity_of, entered, room_of, run_of_trials, runs_on_host
from dask_train.shared_data.budget import RoleMemory
from dask_train.shared_data.held import HeldDataSets
from dask_train.training.launch import launch
from dask_train.training.settings import RunInputs, RunSettings

if TYPE_CHECKING:
    from dask_train.cluster.clients import Client

DATA, VALIDATION = "data", "validation_data"


@dataclass(frozen=True, kw_only=True)
class DataPlace:
    """The cluster, and its data there."""

    client: Client
    peer: Peer
    held: HeldDataSets
    needs: Mapping[str, Any]
    run: RunSettings
    concurrency: int | None

    def slots(self, loop: EstimatorLoop, work: Work, *, most: int) -> Slots:
        """Return processes that do the work."""
        most = min(most, self.concurrency or most)
        datasets = {} if loop.validation is None else {VALIDATION: self.held.segments[VALIDATION]}
        inputs = RunInputs(data={"worker": self.held.segments[DATA]}, datasets=datasets)
        on_host = runs_on_host(room_of(self.peer, self.run.on, self.needs), 1, most)
        start = partial(launch, loop, {"worker": 1}, inputs, run_of_trials(self.run, self.client, on_host))
        capacity = partial(capacity_of, self.peer, self.run.on, self.needs)
        return Slots(self.peer, Crew(start=start, workers=1, most=self.concurrency, capacity=capacity), work)


@contextmanager
def opened(data: Mapping[str, FitData], concurrency: int | None, run: RunSettings) -> Iterator[DataPlace]:
    """Open the cluster, with the data in shared memory, which is released in the end."""
    needs = run.needs(["worker"]).get("worker", {})
    sources = {what: each.source(what) for what, each in data.items()}
    for what, source in sources.items():
        check_some_rows(what, source)
    client = client_or_local(run.client, 0)
    peer = entered(client, run.on, needs, 1)
    held = HeldDataSets(peer, sources)
    try:
        held.compute(RoleMemory.of(find_framework(None), concurrency or 1))
        yield DataPlace(client=client, peer=peer, held=held, needs=needs, run=run, concurrency=concurrency)
    finally:
        held.release()
