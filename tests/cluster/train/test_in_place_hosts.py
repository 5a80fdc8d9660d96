"""``fit(recovery="in_place")`` over two hosts: what is lost on one of them is replaced, and the others keep theirs."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import cloudpickle
import dask.array as da
import pytest

import dask_train as dt

_found = importlib.util.spec_from_file_location("in_place_fates", Path(__file__).with_name("test_in_place.py"))
_fates = sys.modules["in_place_fates"] = importlib.util.module_from_spec(_found)
_found.loader.exec_module(_fates)
cloudpickle.register_pickle_by_value(_fates)
Fate, EPOCHS, STEPS, X, Y = _fates.Fate, _fates.EPOCHS, _fates.STEPS, _fates.X, _fates.Y
check_same = _fates.check_same


@pytest.fixture(scope="module")
def cluster(hosts, no_leaks):
    """Two hosts with two Dask workers of a thread each."""
    with no_leaks(), hosts(2, workers_per_host=2) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def fitted(cluster):
    """Fits a module on rows that stay where they are: which of a batch a worker has depends on that."""

    def kept(x, y):
        return dt.persist(da.from_array(x, chunks=(40, 8)), da.from_array(y, chunks=40), progress=False, client=client)

    client = cluster.client
    data, validation = kept(X, Y), kept(X[:50], Y[:50])

    def fitted(fate, **settings):
        settings = {"recovery": "in_place", "validation_data": validation, **settings}
        return _fates.fitted(client, fate, [data], **settings)

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
    check_same(result, wanted)
    workers = len(result.attempts[0].places)
    assert fate.processes[:workers] == [1 + lost.count(rank) for rank in range(workers)]


def test_the_first_worker_of_a_host_is_replaced_and_the_others_keep_their_processes(fitted, undisturbed, tmp_path):
    """Ranks 0 and 2 are on one host, 1 and 3 on the other one."""
    fate = Fate(tmp_path / "fate", (1, "training", STEPS + 5))
    result = fitted(fate, workers=4)
    check_replaced(result, undisturbed(4), fate, 1)
    places = result.attempts[0].places
    assert result.attempts[1].places["worker/1"] == places["worker/1"]


MOMENTS = [
    ("training", 1),
    ("training", STEPS + 5),
    ("optimizer", STEPS + 5),
    ("training", STEPS + 1),
    ("validation", 4),
    ("schedule", 2),
    ("optimizer", STEPS * EPOCHS),
    ("schedule", EPOCHS),
]


@pytest.mark.slow
@pytest.mark.parametrize("moment", MOMENTS, ids=lambda moment: f"{moment[0]} {moment[1]}")
@pytest.mark.parametrize(
    ("workers", "rank"),
    [
        (4, 0),
        (4, 3),
        (2, 1),
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
