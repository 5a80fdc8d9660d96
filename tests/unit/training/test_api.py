"""Where ``train`` runs a function: on the cluster, or in this process; what both take they are given alike."""

from __future__ import annotations

import inspect

import pytest

import dask_train as dt
from dask_train.training import api


@pytest.fixture
def started(monkeypatch):
    """Which way was taken, and what it was given."""
    found = []
    for way in ("launch", "run_in_process"):
        monkeypatch.setattr(api, way, lambda function, way=way, **given: found.append((way, function, given)))
    return found


def worker(session):
    raise AssertionError("nothing is run")


@pytest.mark.parametrize(
    ("roles", "way"),
    [
        (None, "launch"),
        ({"worker": 2}, "launch"),
        ({"ps": 1}, "launch"),
        ({"ps": 0}, "launch"),
        ({"worker": False}, "launch"),
        ({"worker": 0.0}, "launch"),
        (3, "launch"),
        ({"worker": 0}, "run_in_process"),
        ({"worker": 0, "ps": 1}, "run_in_process"),
    ],
)
def test_no_worker_means_this_process_and_anything_odd_is_told_by_a_launch(started, roles, way):
    dt.train(worker, roles=roles)
    ((taken, function, given),) = started
    assert (taken, function, given["roles"]) == (way, worker, roles)


@pytest.mark.parametrize("roles", [None, {"worker": 0}])
def test_all_keywords_are_handed_on(started, roles):
    settings = {name: object() for name in inspect.signature(dt.train).parameters if name != "function"}
    settings |= {"roles": roles, "checkpoint": "a"}
    dt.train(worker, **settings)
    assert started[0][2] == settings


@pytest.mark.parametrize("roles", [None, {"worker": 0}])
def test_the_model_of_the_best_epoch_is_of_fit(started, roles):
    with pytest.raises(ValueError, match="restore_best"):
        dt.train(worker, roles=roles, checkpoint=dt.Checkpoint("a", best="loss", restore_best=True))
    assert started == []


def test_a_launch_and_this_process_take_the_same_and_what_fit_needs_besides():
    taken = set(inspect.signature(dt.train).parameters)
    for function in (inspect.signature(api.launch), inspect.signature(api.run_in_process)):
        assert taken <= set(function.parameters)
