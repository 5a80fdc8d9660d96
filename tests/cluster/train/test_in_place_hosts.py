"""``fit(recovery="in_place")`` over two hosts: workers that are lost are replaced, and others join and leave."""

from __future__ import annotations

import os
import signal
import threading
import time

import dask.array as da
import psutil
import pytest
from loading import loaded

import dask_train as dt

of_modules, of_keras, of_linear = (loaded(__file__, f"test_in_place{kind}") for kind in ("", "_keras", "_linear"))
Fate, EPOCHS, STEPS = of_modules.Fate, of_modules.EPOCHS, of_modules.STEPS
resizing, resized_modules, resized_keras = (
    loaded(__file__, name) for name in ("resizing", "test_resize", "test_resize_keras")
)
Doors, resized, RESIZED_STEPS = resized_modules.Doors, resized_modules.resized, resized_modules.STEPS
METRICS = {"metrics": {"accuracy": resized_modules.accuracy}}


@pytest.fixture(scope="module")
def cluster(hosts, no_leaks):
    """Two hosts with two Dask workers of a thread each."""
    with no_leaks(), hosts(2, workers_per_host=2) as cluster:
        yield cluster


def kept(client, x, y):
    """Return rows that stay where they are: which of a batch a worker has depends on that."""
    return dt.persist(da.from_array(x, chunks=(40, 8)), da.from_array(y, chunks=40), progress=False, client=client)


@pytest.fixture(scope="module")
def fitted(cluster):
    """Fits a module."""
    client, (x, y) = cluster.client, (of_modules.X, of_modules.Y)
    data, validation = kept(client, x, y), kept(client, x[:50], y[:50])

    def fitted(fate, **settings):
        settings = {"recovery": "in_place", "validation_data": validation, **METRICS, **settings}
        return of_modules.fitted(client, fate, [data], **settings)

    return fitted


@pytest.fixture(scope="module")
def undisturbed(fitted, tmp_path_factory):
    """The results of runs without a loss, by the number of workers."""
    found = {}

    def of(workers):
        if workers not in found:
            found[workers] = fitted(Fate(tmp_path_factory.mktemp("whole") / "fate"), workers=workers)
        return found[workers]

    return of


def check_replaced(result, wanted, fate, *lost):
    """Compare with a run that was not disturbed; processes of those that were ``lost`` were replaced, no others."""
    reasons = [attempt.reason for attempt in result.attempts]
    assert (fate.num_lost, len(reasons)) == (len(lost), 1 + len(lost)), reasons
    of_modules.check_same(result, wanted)
    workers = len(result.attempts[0].places)
    assert fate.processes[:workers] == [1 + lost.count(rank) for rank in range(workers)]


def test_the_first_worker_of_a_host_is_replaced_and_the_others_keep_their_processes(fitted, undisturbed, tmp_path):
    """Ranks 0 and 2 are on one host, 1 and 3 on the other one."""
    fate = Fate(tmp_path / "fate", (1, "training", STEPS + 5))
    result = fitted(fate, workers=4)
    check_replaced(result, undisturbed(4), fate, 1)
    places = result.attempts[0].places
    assert result.attempts[1].places["worker/1"] == places["worker/1"]


MOMENTS = [moment for moment in of_modules.MOMENTS if moment != ("training", STEPS * EPOCHS)]


@pytest.mark.slow
@pytest.mark.parametrize("moment", MOMENTS, ids=lambda moment: f"{moment[0]} {moment[1]}")
@pytest.mark.parametrize(
    ("workers", "rank"),
    [
        (4, 0),
        pytest.param(2, 1, marks=pytest.mark.nightly),
        pytest.param(4, 3, marks=pytest.mark.nightly),
        pytest.param(2, 0, marks=pytest.mark.nightly),
        pytest.param(3, 1, marks=pytest.mark.nightly),
    ],
)
def test_a_lost_worker_is_replaced(fitted, undisturbed, tmp_path, workers, rank, moment):
    fate = Fate(tmp_path / "fate", (rank, *moment))
    result = fitted(fate, workers=workers, checkpoint=dt.Checkpoint(tmp_path / "kept", every_steps=3))
    check_replaced(result, undisturbed(workers), fate, rank)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("workers", "losses"),
    [
        (4, [(0, "training", 9), (1, "training", 9)]),
        (4, [(1, "training", 9), (3, "training", 9)]),
        (4, [(0, "training", 9), (2, "optimizer", 9), (1, "training", 12)]),
        (2, [(0, "training", 9), (1, "optimizer", 12)]),
        (4, [(2, "training", 9), (1, "meeting", 9)]),
        (4, [(1, "training", 9), (0, "meeting", 9)]),
        (2, [(1, "training", 9), (1, "training", 5)]),
    ],
    ids=["of both hosts", "a whole host", "one after the other", "each alone", "meeting", "leading", "again"],
)
def test_several_lost_workers_are_replaced(fitted, undisturbed, tmp_path, workers, losses):
    fate = Fate(tmp_path / "fate", *losses)
    result = fitted(fate, workers=workers, recovery=dt.RecoveryPolicy(scope="in_place", max_restarts=5))
    check_replaced(result, undisturbed(workers), fate, *(rank for rank, *_ in losses))


def kill_dask_worker():
    """In a role: end its Dask worker, and with it this process."""
    parents = psutil.Process().parents()
    next(parent for parent in parents if parent.cmdline()[1:4] == ["-m", "dask", "worker"]).kill()
    threading.Event().wait()


@pytest.mark.slow
@pytest.mark.parametrize(("workers", "rank"), [(4, 3), pytest.param(2, 1, marks=pytest.mark.nightly)])
def test_who_is_on_a_dask_worker_that_is_killed_is_replaced(hosts, no_leaks, tmp_path, workers, rank):
    """On the other Dask worker of the host, which may have a worker already; alone, it has left nothing on its host."""
    x, y = of_modules.X, of_modules.Y
    with no_leaks(), hosts(2, workers_per_host=2) as cluster:
        data, validation = kept(cluster.client, x, y), kept(cluster.client, x[:50], y[:50])
        settings = {"recovery": "in_place", "workers": workers, "validation_data": validation, **METRICS}
        wanted = of_modules.fitted(cluster.client, Fate(tmp_path / "whole"), [data], **settings)
        fate = Fate(tmp_path / "fate", (rank, "training", STEPS + 5), by=kill_dask_worker)
        result = of_modules.fitted(cluster.client, fate, [data], **settings)
        check_replaced(result, wanted, fate, rank)
        first, second = (attempt.places[f"worker/{rank}"] for attempt in result.attempts)
        assert cluster.host_of(first) == cluster.host_of(second)
        del data, validation, wanted, result


@pytest.fixture(scope="module")
def fitted_keras(cluster):
    """Fits a Keras model with four workers."""
    client, (x, y) = cluster.client, (of_keras.X, of_keras.Y)
    data, validation = kept(client, x, y), kept(client, x[:50], y[:50])

    def fitted(folder, losses=()):
        settings = {"recovery": "in_place", "validation_data": validation, "workers": 4}
        return of_keras.fitted(client, folder, losses, data=[data], **settings)

    return fitted


@pytest.fixture(scope="module")
def undisturbed_keras(fitted_keras, tmp_path_factory):
    return fitted_keras(tmp_path_factory.mktemp("whole") / "fate")


@pytest.mark.slow
@pytest.mark.parametrize(
    "loss",
    [
        (0, "optimizer", STEPS + 5),
        (3, "validation", 4),
        pytest.param((1, "training", STEPS + 5), marks=pytest.mark.nightly),
        pytest.param((0, "epoch end", 2), marks=pytest.mark.nightly),
    ],
    ids=lambda loss: "{} {} {}".format(*loss),
)
def test_a_lost_worker_of_a_keras_model_is_replaced(fitted_keras, undisturbed_keras, tmp_path, loss):
    found = fitted_keras(tmp_path / "fate", [loss])
    assert len(found[0].attempts) == 2, [attempt.reason for attempt in found[0].attempts]
    of_keras.check_same(found, undisturbed_keras)
    assert of_keras.of(tmp_path / "fate") == ([1 + (rank == loss[0]) for rank in range(4)], 1)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*did not converge")
@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("solver", ["lbfgs", pytest.param("admm", marks=pytest.mark.nightly)])
def test_a_lost_worker_of_a_linear_model_is_replaced(cluster, until, solver, rank):
    rows, whole, found = of_linear.made(cluster.client), of_linear.model(solver), of_linear.model(solver)
    dt.fit(whole, *rows, workers=3, client=cluster.client, recovery="in_place")
    run = dt.fit(found, *rows, workers=3, client=cluster.client, wait=False, recovery="in_place")
    before = of_linear.pids(until(run, 5))
    (pid,) = (pid for pid, command in all_processes(cluster).items() if f"dask_train.role worker {rank} " in command)
    os.kill(pid, signal.SIGKILL)
    after = of_linear.pids(until(run, 20))
    result = run.result()
    assert len(result.attempts) == 2, [attempt.reason for attempt in result.attempts]
    assert [after[each] == before[each] for each in range(3)] == [each != rank for each in range(3)]
    assert (found.coef_.tobytes(), found.n_iter_) == (whole.coef_.tobytes(), whole.n_iter_)
    assert (result.ledger.trained, result.ledger.repeated, result.ledger.dropped) == (200_000, 0, 0)


def all_processes(cluster):
    """What runs on both hosts, as this machine numbers them."""
    return {pid: command for host in (0, 1) for pid, command in cluster.processes(host).items()}


# Workers join and leave


@pytest.fixture(scope="module")
def fixed(cluster, tmp_path_factory):
    """The result of a run with a fixed number of workers."""
    return resized_modules.fitted(cluster.client, Doors(tmp_path_factory.mktemp("fixed")), **METRICS)


def hosts_of(cluster, run):
    """The host of each rank."""
    return {role["rank"]: cluster.host_of(role["address"]) for role in run.status()["roles"]}


def test_workers_join_and_leave_over_hosts_and_the_model_is_that_of_a_fixed_number(cluster, tmp_path, fixed, wait_for):
    first, last = f"training {RESIZED_STEPS + 3}", f"training {2 * RESIZED_STEPS + 5}"
    doors = Doors(tmp_path, first, f"validation {2 * RESIZED_STEPS}", last)
    run = resized_modules.fitted(cluster.client, doors, recovery="in_place", wait=False, **METRICS)
    resized(run, doors, first, 3, wait_for)
    resized(run, doors, f"validation {2 * RESIZED_STEPS}", 4, wait_for)
    assert sorted(hosts_of(cluster, run).values()) == [0, 0, 1, 1]
    resized(run, doors, last, 2, wait_for)
    result = run.result()
    resized_modules.check_same(result, fixed)
    assert (len(result.attempts), result.notices) == (1, [])


def test_a_run_follows_the_dask_workers_of_all_hosts(cluster, tmp_path, fixed, wait_for):
    """It begins beside another run, on one Dask worker of each host, and grows when that one ends."""

    def wait_until_stopped(session):
        while not session.should_stop():
            time.sleep(0.05)

    taken = [cluster.workers_on(host)[0] for host in (0, 1)]
    other = dt.train(wait_until_stopped, roles={"worker": 2}, on=taken, client=cluster.client, wait=False)
    wait_for(lambda: str(other.status()["phase"]) == "running", "the other run has its places", timeout_s=60)
    door = "training 3"
    doors = Doors(tmp_path, door)
    run = resized_modules.fitted(cluster.client, doors, workers=(2, 4), wait=False, **METRICS)
    wait_for(lambda: doors.waits(door), "the first worker waits", timeout_s=resizing.WAIT_S)
    assert sorted(hosts_of(cluster, run).values()) == [0, 1]
    other.stop()
    resizing.wait_until_told(run, 4, wait_for)
    doors.opened(door)
    result = run.result()
    resized_modules.check_same(result, fixed)
    assert {line.rank for line in result.ledger.lines} == set(range(4))
    assert (len(result.attempts), result.notices) == (1, [])


@pytest.mark.slow
def test_a_run_shrinks_when_dask_workers_of_either_host_are_retired(hosts, no_leaks, tmp_path, fixed, wait_for):
    with no_leaks(), hosts(2, workers_per_host=2) as cluster:
        door = f"training {RESIZED_STEPS + 5}"
        doors = Doors(tmp_path, door)
        run = resized_modules.fitted(cluster.client, doors, workers=(2, 4), wait=False, **METRICS)
        wait_for(lambda: doors.waits(door), "the first worker waits", timeout_s=resizing.WAIT_S)
        addresses = {role["rank"]: role["address"] for role in run.status()["roles"]}
        cluster.client.retire_workers([addresses[2], addresses[3]])
        resizing.wait_until_told(run, 2, wait_for)
        doors.opened(door)
        result = run.result()
        resized_modules.check_same(result, fixed)
        assert {line.rank for line in result.ledger.lines if line.epoch == EPOCHS - 1} == {0, 1}
        assert result.notices == []
        del run, result


@pytest.mark.slow
@pytest.mark.parametrize(
    "kills",
    [["0 training"], *(pytest.param([f"{rank} training"], marks=pytest.mark.nightly) for rank in (1, 2))],
    ids=str,
)
def test_workers_that_are_lost_while_others_join_or_leave_over_hosts_are_replaced(
    cluster, tmp_path, fixed, wait_for, kills
):
    """The third one is on the host of one of the others."""
    first, last = "training 2", f"training {RESIZED_STEPS + 5}"
    doors = Doors(tmp_path, first, last)
    run = resized_modules.fitted(cluster.client, doors, recovery="in_place", wait=False, **METRICS)
    resized(run, doors, first, 3, wait_for, *kills)
    again = [kill for kill in kills if not kill.startswith("2")]  # which leaves before its next step
    resized(run, doors, last, 2, wait_for, *again)
    result = run.result()
    assert len(result.attempts) == 1 + len(kills) + len(again), [attempt.reason for attempt in result.attempts]
    resized_modules.check_same(result, fixed)


@pytest.mark.slow
def test_workers_of_a_keras_model_join_and_leave_over_hosts(cluster, tmp_path, wait_for):
    steps = resized_keras.STEPS
    (whole := tmp_path / "whole").mkdir()
    wanted = resized_keras.fitted(cluster.client, whole)
    within, at_end, last = 2, steps - 1, 2 * steps + 2
    run = resized_keras.fitted(cluster.client, tmp_path, (within, at_end, last), recovery="in_place", wait=False)
    resized_keras.resized(run, tmp_path, within, 3, wait_for)
    resized_keras.resized(run, tmp_path, at_end, 4, wait_for, (1, at_end + 1))
    resized_keras.resized(run, tmp_path, last, 2, wait_for)
    result = run.result()
    resized_keras.check_same(result, wanted)
    assert len(result.attempts) == 2, [attempt.reason for attempt in result.attempts]
