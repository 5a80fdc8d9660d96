"""Where ``train`` runs a function: on the cluster, or in this process; what both take they are given alike."""

from __future__ import annotations

import inspect

import pytest

import dask_train as dt
from dask_train.training import api
from dask_train.training.in_process import run_in_process
from dask_train.training.launch import launch


@pytest.fixture
def started(monkeypatch):
    """Which way was taken, and what it was given."""
    found = []
    for way in ("launch", "run_in_process"):
        monkeypatch.setattr(api, way, lambda *given, way=way, **more: found.append((way, *given, more)))
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
    ((taken, function, given, *_),) = started
    assert (taken, function, given) == (way, worker, roles)


@pytest.mark.parametrize("roles", [None, {"worker": 0}])
def test_all_keywords_are_handed_on(started, roles):
    of_inputs = {name: object() for name in ("data", "datasets", "features", "label")}
    of_run = {"streaming": 3, "stop": dt.Patience("loss", 2), "checkpoint": dt.Checkpoint("a"), "resume": True}
    of_run |= {"recovery": None, "on": ["tcp://a:1"], "resources": {"GPU": 1}, "gpus": 1, "client": object()}
    of_run |= {"wait": True, "name": "mine", "progress": True, "log": []}
    assert {"function", "roles", "framework", *of_inputs, *of_run} == set(inspect.signature(dt.train).parameters)
    dt.train(worker, roles=roles, framework="torch", **of_inputs, **of_run)
    ((_, function, given, inputs, run, more),) = started
    assert (function, given, more) == (worker, roles, {"framework": "torch"})
    assert vars(inputs) == of_inputs
    assert {name: getattr(run, name) for name in of_run} == of_run


@pytest.mark.parametrize("roles", [None, {"worker": 0}])
def test_the_model_of_the_best_epoch_is_of_fit(started, roles):
    with pytest.raises(ValueError, match="restore_best"):
        dt.train(worker, roles=roles, checkpoint=dt.Checkpoint("a", best="loss", restore_best=True))
    assert started == []


def test_a_launch_and_this_process_take_the_same():
    ways = [inspect.signature(way).parameters for way in (launch, run_in_process)]
    assert list(ways[0]) == list(ways[1])
