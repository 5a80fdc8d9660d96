"""Room for all roles of a run or for none, and who waits for whom."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import dask
import pytest
from dask_workers import own_dask_worker

import dask_train as dt


def serve(session):
    session.report(up=1)
    session.wait_until_stopped()


def test_two_runs_on_a_cluster_for_one(client, until, wait_for):
    first = dt.train(serve, roles={"worker": 3}, wait=False)
    until(first, 3)
    second = dt.train(serve, roles={"worker": 2}, wait=False)
    waiting = wait_for(lambda: second.status()["waiting"], "the second run says for what it waits")
    assert "2 roles need as many free threads, and 1 of 4 are free." in waiting
    assert f"carries 2 roles of {first.id}" in waiting
    assert second.status()["phase"] == "waiting for room"
    third = dt.train(serve, roles={"worker": 1}, wait=False)  # it would fit, and does not overtake
    waiting = wait_for(lambda: third.status()["waiting"], "the third run waits, too")
    assert "1 other runs are first in line" in waiting
    first.stop()
    until(second, 2)
    until(third, 1)
    for run in (second, third):
        run.stop()


def test_a_run_for_which_there_is_no_room_in_time(client, until, state):
    first = dt.train(serve, roles={"worker": 4}, wait=False)
    until(first, 4)
    with (
        dask.config.set({"train.placement.timeout": "0.5s"}),
        pytest.raises(dt.PlacementError, match=r"ps=1, worker=1 found no room within 0.5 s. 2 roles need") as raised,
    ):
        dt.train(serve, roles={"ps": 1, "worker": 1})
    assert "raise train.placement.timeout" in str(raised.value)
    first.stop()


def test_a_run_that_is_stopped_while_it_waits(client, until, wait_for):
    first = dt.train(serve, roles={"worker": 4}, wait=False)
    until(first, 4)
    second = dt.train(serve, roles={"worker": 1}, wait=False)
    wait_for(lambda: second.status()["waiting"], "it waits")
    second.stop("no longer wanted")
    assert second.result().results == {"worker": [None]}
    first.stop()
    assert dt.train(lambda session: 1, roles={"worker": 4}).results == {"worker": [1] * 4}


def test_a_client_that_dies_while_it_waits_is_forgotten(client, until, wait_for, state):
    first = dt.train(serve, roles={"worker": 4}, wait=False)
    until(first, 4)
    code = f"""
import dask_train as dt
from distributed import Client
client = Client({client.scheduler.address!r})
run = dt.train(lambda session: 1, roles={{"worker": 2}}, wait=False)
print(run.id, flush=True)
run.result()
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as other:
        name = other.stdout.readline().strip()
        wait_for(lambda: name in state(client)["runs"], "the other client's run waits")
        other.kill()
    wait_for(lambda: state(client)["runs"] == (first.id,), "it is forgotten")
    first.stop()


def test_roles_go_where_they_are_told_to(client, workers):
    address = workers(client)[1]
    result = dt.train(lambda session: own_dask_worker(), roles={"worker": 2}, on=[address])
    assert set(result.results["worker"]) == set(client.run(os.getpid, workers=[address]).values())
    with pytest.raises(dt.PlacementError, match=r"on= names tcp://127.0.0.1:1, and the Dask workers are"):
        dt.train(serve, roles={"worker": 1}, on=["tcp://127.0.0.1:1"])


def test_resources_that_nobody_declares(client):
    with pytest.raises(dt.PlacementError, match=r"no Dask worker declares GPU=1. Ask for less, or start Dask workers"):
        dt.train(serve, roles={"worker": 1}, resources={"GPU": 1})


def test_a_network_and_a_run_keep_away_from_each_other(client, until, wait_for, without_tensorflow):
    with dt.start_tensorflow(client, worker=1, leave_servers=True):
        run = dt.train(serve, roles={"worker": 3}, wait=False)
        waiting = wait_for(lambda: run.status()["waiting"], "it waits")
        assert "carries network tf-" in waiting
        with pytest.raises(dt.PlacementError, match=r"carries roles of a run|needs 2 Dask workers"):
            dt.start_tensorflow(client, worker=2)
    run.stop()


def test_the_multilock_of_xgboost_is_waited_for(client, wait_for, workers):
    from distributed import MultiLock

    lock = MultiLock(names=workers(client))
    assert lock.acquire(timeout=60)
    run = dt.train(lambda session: 1, roles={"worker": 2}, wait=False)
    waiting = wait_for(lambda: run.status()["waiting"], "it waits")
    assert "is locked by another library, such as xgboost.dask" in waiting
    lock.release()
    assert run.result(60).results == {"worker": [1, 1]}


def test_a_paused_dask_worker_is_named(client, workers, wait_for):
    address = workers(client)[0]

    def pause(to, dask_worker):
        from distributed.core import Status

        dask_worker.status = Status[to]

    client.run(pause, "paused", workers=[address])
    try:
        wait_for(lambda: len(workers(client)) == 1, "the scheduler knows")
        with (
            dask.config.set({"train.placement.timeout": "0.5s"}),
            pytest.raises(dt.PlacementError, match=rf"{address} is paused \(memory at"),
        ):
            dt.train(serve, roles={"worker": 4})
        run = dt.train(lambda session: 1, roles={"worker": 4}, wait=False)
        wait_for(lambda: run.status()["waiting"], "it waits")
    finally:
        client.run(pause, "running", workers=[address])
    assert run.result(60).results == {"worker": [1] * 4}


def test_a_busy_cluster_delays_a_run_and_loses_nothing(client):
    tasks = client.map(lambda n: time.sleep(0.3) or n, range(8), pure=False)
    assert dt.train(lambda session: session.rank, roles={"worker": 4}).results == {"worker": [0, 1, 2, 3]}
    assert client.gather(tasks) == list(range(8))
    del tasks
