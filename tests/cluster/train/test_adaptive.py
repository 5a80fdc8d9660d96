"""Adaptive clusters add Dask workers for runs that wait for threads, or whose number of workers may grow."""

from __future__ import annotations

import pytest
from distributed import Client
from loading import loaded

torch_runs, resizing = loaded(__file__, "test_resize"), loaded(__file__, "resizing")
WAIT_S = resizing.WAIT_S


@pytest.fixture
def adaptive(make_cluster):
    """A client of a cluster of one process with a thread, which adds up to two."""
    cluster = make_cluster(n_workers=1)
    cluster.adapt(minimum=1, maximum=3, interval="200ms")
    with Client(cluster) as client:
        yield client


def fitted(client, doors, **settings):
    return torch_runs.fitted(client, doors, metrics={"accuracy": torch_runs.accuracy}, **settings)


def dask_workers(run):
    return {role["address"] for role in run.status()["roles"]}


def test_a_run_gets_the_dask_workers_that_its_roles_need_and_gives_them_back(adaptive, tmp_path, wait_for):
    doors = torch_runs.Doors(tmp_path, "training 3")
    run = fitted(adaptive, doors, workers=2, wait=False)
    wait_for(lambda: doors.waits("training 3"), "the first worker waits", timeout_s=WAIT_S)
    assert len(dask_workers(run)) == 2
    assert len(adaptive.scheduler_info()["workers"]) == 2
    doors.opened("training 3")
    run.result()
    wait_for(lambda: len(adaptive.scheduler_info()["workers"]) == 1, "the cluster shrinks", timeout_s=WAIT_S)


@pytest.mark.slow
def test_a_run_that_may_grow_gets_as_many_as_the_cluster_may_have(adaptive, tmp_path, wait_for):
    doors = torch_runs.Doors(tmp_path, "training 3")
    run = fitted(adaptive, doors, workers=(2, 8), wait=False)
    wait_for(lambda: doors.waits("training 3"), "the first worker waits", timeout_s=WAIT_S)
    resizing.wait_until_told(run, 3, wait_for)
    doors.opened("training 3")
    result = run.result()
    assert {line.rank for line in result.ledger.lines} == {0, 1, 2}
    assert result.notices == []
