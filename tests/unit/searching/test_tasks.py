"""What is trained for a trial: the model that ``build`` returns, and what it tells beside it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import keras
import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge

from dask_train.fitting.data import fit_data
from dask_train.fitting.settings import KerasSettings
from dask_train.searching.checks import OtherKindError
from dask_train.searching.tasks import TrialTasks

SETTINGS = KerasSettings(batch_size=4, epochs=2, seed=7)


def model(_: Any = None) -> keras.Model:
    made = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    made.compile(loss="mse")
    return made


def tasks(build: Any, **settings: Any) -> TrialTasks:
    given = {
        "build": build,
        "data": fit_data("data", np.ones((8, 2)), np.ones((8, 1)), None),
        "validation": None,
        "workers": 1,
        "settings": SETTINGS,
    }
    return TrialTasks(**{**given, **settings})


def test_a_model_alone_is_fitted_as_the_search_says():
    task = tasks(model).task("trial")
    assert (task.epochs, task.batch_size, task.seed, task.shuffle) == (2, 4, 7, True)
    assert (task.validation_batch_size, task.validation_columns, task.class_weight) == (4, None, None)
    assert len(task.arrays) >= 2


def test_what_build_tells_of_a_trial_counts_and_is_of_that_trial_alone():
    told = iter([{"batch_size": 8, "epochs": 5, "class_weight": None}, {}])
    several = tasks(lambda _: (model(), next(told)))
    first, second = several.task("one"), several.task("two")
    assert (first.batch_size, first.epochs, first.validation_batch_size) == (8, 5, 8)
    assert (second.batch_size, second.epochs) == (4, 2)
    assert first.run != second.run, "each trial is a run of its own"


def test_a_validation_has_its_own_batches():
    validation = fit_data("validation", np.ones((3, 2)), np.ones((3, 1)), None)
    task = tasks(model, validation=validation, settings=replace(SETTINGS, validation_batch_size=3)).task("trial")
    assert task.validation_batch_size == 3
    assert task.validation_columns == validation.columns


@pytest.mark.parametrize(
    ("made", "error", "says"),
    [
        (lambda: (model(),), TypeError, "build returned a tuple of 1; it returns a model, or a model and a dict"),
        (lambda: (model(), {}, 3), TypeError, "build returned a tuple of 3"),
        (lambda: (model(), [1]), TypeError, "build returned a tuple of 2"),
        (
            lambda: (model(), {"lr": 1, "epoch": 2}),
            ValueError,
            "build told epoch, lr of a trial; it can tell batch_size",
        ),
        (lambda: (model(), {"batch_size": 0}), ValueError, "batch_size is 0"),
        (lambda: "a model", TypeError, "build returned a str; it returns a compiled Keras model, or one and a dict"),
        (Ridge, OtherKindError, "build returned a Ridge, and without scoring= or cv= a search is over Keras models"),
        (lambda: torch.nn.Linear(2, 1), OtherKindError, "build returned a Linear, .* modules of torch with dt.fit"),
    ],
)
def test_what_build_returns_has_to_be_of_a_kind(made, error, says):
    with pytest.raises(error, match=says):
        tasks(lambda _: made()).task("trial")


def test_what_build_raises_is_raised():
    def build(_: Any) -> Any:
        raise ZeroDivisionError("of the user's")

    with pytest.raises(ZeroDivisionError, match="of the user's"):
        tasks(build).task("trial")


def test_rows_that_do_not_fit_the_model_are_refused_before_it_is_sent():
    with pytest.raises(ValueError, match="data"):
        tasks(model, data=fit_data("data", np.ones((8, 3)), np.ones((8, 1)), None)).task("trial")


def test_trials_of_several_workers_are_refused_what_fit_is():
    def build(_: Any) -> keras.Model:
        made = keras.Sequential([keras.Input((2, 1), batch_size=4), keras.layers.LSTM(1, stateful=True)])
        made.compile(loss="mse")
        return made

    tasks(build).task("trial")
    with pytest.raises(ValueError, match="is stateful"):
        tasks(build, workers=2).task("trial")
