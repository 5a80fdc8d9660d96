"""What ``search`` refuses before anything starts, in words that say what to change."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import dask_train as dt

X, Y = np.zeros((10, 2), "f4"), np.zeros(10, "i8")


def build(trial):
    raise AssertionError("nothing is built")


@pytest.mark.parametrize(
    ("wrong", "error", "told"),
    [
        ({"build": 3}, TypeError, "build is 3; pass a function"),
        ({"metric": ""}, ValueError, "metric is ''; pass the name of a score"),
        ({"direction": "up"}, ValueError, "direction is 'up'; it is 'maximize' or 'minimize'"),
        ({"trials": 0}, ValueError, "trials is 0; it is a whole number of at least 1"),
        ({"workers_per_trial": 1.5}, ValueError, r"workers_per_trial is 1\.5"),
        ({"concurrency": True}, ValueError, "concurrency is True"),
        ({"timeout_s": 0}, ValueError, "timeout_s is 0; it is a number of seconds above 0"),
        ({"validation_split": 0.0}, ValueError, "metric='val_accuracy' is of validation: pass validation_data"),
        ({"sampler": "grid"}, TypeError, r"sampler is 'grid'; pass one of optuna\.samplers"),
        ({"callbacks": [3]}, TypeError, "callbacks has a int"),
    ],
)
def test_arguments_that_can_not_be(wrong, error, told):
    given = {"build": build, "x": X, "y": Y, "validation_split": 0.2, **wrong}
    with pytest.raises(error, match=told):
        dt.search(**given)


def test_without_optuna_the_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ImportError, match=r"pip install 'dask-train\[search\]'"):
        dt.search(build, X, Y, validation_split=0.2)
