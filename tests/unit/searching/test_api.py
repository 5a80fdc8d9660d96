"""What ``search`` refuses before anything starts, in words that say what to change."""

from __future__ import annotations

import sys

import numpy as np
import optuna
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
        *(
            ({"metric": name}, ValueError, f"metric='{name}' is a loss or an error .* Pass direction='minimize'")
            for name in (
                "val_loss",
                "val_logloss",
                "val_mean_absolute_error",
                "val_poisson-nloglik",
                "val_l2",
                "error@0.3",
            )
        ),
        ({"direction": "up"}, ValueError, "direction is 'up'; it is 'maximize' or 'minimize'"),
        ({"trials": 0}, ValueError, "trials is 0; it is a whole number of at least 1"),
        ({"workers_per_trial": 1.5}, ValueError, r"workers_per_trial is 1\.5"),
        ({"concurrency": True}, ValueError, "concurrency is True"),
        ({"timeout_s": 0}, ValueError, "timeout_s is 0; it is a number of seconds above 0"),
        ({"validation_split": 0.0}, ValueError, "metric='val_accuracy' is of validation: pass validation_data"),
        (
            {"metric": ["val_loss", "loss"]},
            ValueError,
            r"metric is \['val_loss', 'loss'\]: search follows one objective",
        ),
        ({"direction": ["minimize"] * 2}, ValueError, "direction is .* search follows one objective"),
        ({"seed": -1}, ValueError, "seed is -1; it is a whole number from 0"),
        ({"storage": "/there/is/none.db"}, ValueError, "storage is .* in '/there/is', which does not exist"),
        ({"storage": "/"}, ValueError, "storage is '/', which is a folder"),
        ({"study": 3}, TypeError, r"study is 3; pass an optuna\.Study"),
        ({"resources": 3}, TypeError, "resources is 3; pass a dict"),
        ({"resources": {"GPU": float("nan")}}, ValueError, "resources asks for GPU=nan"),
        ({"resources": {"scorer": {"GPU": 1}}}, ValueError, "names role 'scorer', which the run does not have"),
        (
            {"client": "tcp://10.0.0.1:8786"},
            TypeError,
            r"client is 'tcp://10\.0\.0\.1:8786'; pass a distributed\.Client",
        ),
        ({"sampler": "grid"}, TypeError, r"sampler is 'grid'; pass one of optuna\.samplers"),
        ({"callbacks": [3]}, TypeError, "callbacks has a int"),
        ({"resume": True}, ValueError, "resume=True resumes from a checkpoint; say where they are kept"),
        ({"resume": "new_learning_rate", "checkpoint": "a"}, TypeError, "resume is 'new_learning_rate'; it is True or"),
        (
            {"checkpoint": dt.Checkpoint("a", best="val_loss")},
            ValueError,
            r"the auto of 'val_loss', and search looks for the max of 'val_accuracy'\. Leave best= and mode= out",
        ),
        ({"checkpoint": "memory://a"}, ValueError, "lies in the memory of one process"),
    ],
)
def test_arguments_that_can_not_be(wrong, error, told):
    given = {"build": build, "x": X, "y": Y, "validation_split": 0.2, **wrong}
    with pytest.raises(error, match=told):
        dt.search(**given)


def test_without_optuna_the_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ImportError, match=r"pip install '\.\[search\]' in a clone of dask-train"):
        dt.search(build, X, Y, validation_split=0.2)


def test_studies_that_can_not_go_on():
    several = optuna.create_study(directions=["minimize", "maximize"])
    with pytest.raises(ValueError, match=r"has 2 objectives \(minimize, maximize\), and search follows one"):
        dt.search(build, X, Y, validation_split=0.2, study=several)
    one = optuna.create_study(direction="minimize")
    with pytest.raises(ValueError, match=r"is there to minimize, and direction is 'maximize'\. Leave direction out"):
        dt.search(build, X, Y, validation_split=0.2, study=one, direction="maximize")
    with pytest.raises(ValueError, match="There are study and storage; a study has its own"):
        dt.search(build, X, Y, validation_split=0.2, study=one, storage="x.db")
