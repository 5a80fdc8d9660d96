"""``workers=(2, 4)`` of ``fit``: the number of workers follows the Dask workers that come and go."""

from __future__ import annotations

import pytest
from distributed import Client
from loading import loaded

import dask_train as dt

resizing, torch_runs = loaded(__file__, "resizing"), loaded(__file__, "test_resize")
WAIT_S, STEPS, EPOCHS = resizing.WAIT_S, torch_runs.STEPS, torch_runs.EPOCHS


@pytest.fixture
def made_client(make_cluster):
    """Makes clients of clusters of so many processes, with a thread each."""
    made = []

    def make(n_workers):
        made.append(Client(make_cluster(n_workers=n_workers)))
        return made[-1]

    yield make
    for client in made:
        client.close()


def addresses(run):
    """The Dask worker of each rank that trains."""
    return {role["rank"]: role["address"] for role in run.status()["roles"] if role["phase"] == "running"}


def fitted(client, doors, **settings):
    return torch_runs.fitted(client, doors, metrics={"accuracy": torch_runs.accuracy}, **settings)


def fixed(client, folder):
    """The result of a run with a fixed number of workers."""
    folder.mkdir()
    return fitted(client, torch_runs.Doors(folder))


@pytest.mark.parametrize("most", [3, pytest.param(4, marks=pytest.mark.nightly)])
def test_a_run_grows_and_shrinks_with_its_cluster_and_the_model_is_that_of_a_fixed_number(
    made_client, tmp_path, wait_for, most
):
    client = made_client(2)
    wanted = fixed(client, tmp_path / "fixed")
    first, last = "training 3", f"training {STEPS + 5}"
    doors = torch_runs.Doors(tmp_path, first, last)
    run = fitted(client, doors, workers=(2, most), wait=False)
    wait_for(lambda: doors.waits(first), "the first worker waits", timeout_s=WAIT_S)
    assert len(addresses(run)) == 2
    client.cluster.scale(most)
    resizing.wait_until_told(run, most, wait_for)
    doors.opened(first)
    wait_for(lambda: doors.waits(last), "the first worker waits", timeout_s=WAIT_S)
    assert len(set(addresses(run).values())) == most
    client.cluster.scale(2)
    resizing.wait_until_told(run, 2, wait_for)
    doors.opened(last)
    result = run.result()
    torch_runs.check_same(result, wanted)
    assert {line.rank for line in result.ledger.lines} == set(range(most))
    assert {line.rank for line in result.ledger.lines if line.epoch == EPOCHS - 1} == {0, 1}
    assert result.notices == []
    reasons = [attempt.reason for attempt in result.attempts[:-1]]
    assert all("its Dask worker leaves the cluster" in reason for reason in reasons), reasons


@pytest.mark.slow
def test_the_first_worker_moves_when_its_dask_worker_is_retired_however_often(made_client, tmp_path, wait_for):
    client = made_client(4)
    wanted = fixed(client, tmp_path / "fixed")
    doors = [f"training {step}" for step in (3, STEPS + 1)]
    closed = torch_runs.Doors(tmp_path, *doors)
    recovery = dt.RecoveryPolicy(scope="in_place", max_restarts=0)  # which counts losses, and these are none
    run = fitted(client, closed, workers=(2, 8), recovery=recovery, wait=False)
    for left, door in zip((3, 2), doors, strict=True):
        wait_for(lambda door=door: closed.waits(door), "the first worker waits", timeout_s=WAIT_S)
        before = resizing.attempts(run)[0]
        client.retire_workers([addresses(run)[0]])
        wait_for(lambda before=before: resizing.attempts(run)[0] > before, "it is replaced", timeout_s=WAIT_S)
        resizing.wait_until_told(run, left, wait_for)
        closed.opened(door)
    result = run.result()
    torch_runs.check_same(result, wanted)
    assert result.notices == []


@pytest.mark.slow
def test_a_number_that_the_user_asks_for_stays(made_client, tmp_path, wait_for):
    client = made_client(3)
    door = "training 3"
    doors = torch_runs.Doors(tmp_path, door)
    run = fitted(client, doors, workers=(2, 3), wait=False)
    torch_runs.resized(run, doors, door, 2, wait_for)
    client.cluster.scale(4)
    client.wait_for_workers(4)
    result = run.result()
    assert (len(result.attempts), result.notices) == (1, [])
    assert {line.rank for line in result.ledger.lines if line.epoch == EPOCHS - 1} == {0, 1}
