"""What is trained for a trial: the model that ``build`` returns, and what it tells beside it."""

from __future__ import annotations

import importlib
import sys
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest
import torch
import xgboost
from sklearn.linear_model import Ridge

from dask_train.fitting.kinds import searched_kinds_here
from dask_train.fitting.model_kind import TrialRows
from dask_train.fitting.torch_module.training_objects import TrainingObjects
from dask_train.fitting.torch_module.values import plain
from dask_train.inputs.making import input_data
from dask_train.searching.checks import OtherKindError
from dask_train.searching.tasks import TrialTasks

GIVEN = {"batch_size": 4, "epochs": 2, "seed": 7}


def model(_: Any = None) -> keras.Model:
    made = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    made.compile(loss="mse")
    return made


def tasks(build: Any, data: Any = None, validation: Any = None, workers: int = 1, **given: Any) -> TrialTasks:
    data = data or input_data("data", np.ones((8, 2)), np.ones((8, 1)), None)
    return TrialTasks(
        build=build, rows=TrialRows(data=data, validation=validation, workers=workers), arguments={**GIVEN, **given}
    )


def task(of: TrialTasks, trial: Any = "trial") -> Any:
    return of.task(trial).work.task


def test_a_model_alone_is_fitted_as_the_search_says():
    told = task(tasks(model))
    assert (told.epochs, told.batch_size, told.seed, told.shuffle) == (2, 4, 7, True)
    assert (told.validation_batch_size, told.validation_columns, told.class_weight) == (4, None, None)
    assert len(told.arrays) >= 2


def test_missing_categories_are_for_trees_alone():
    rows = TrialRows(
        data=input_data("data", np.ones((8, 2)), np.ones(8), None),
        validation=input_data("validation_data", np.ones((8, 2)), np.ones(8), None),
        workers=1,
        missing=lambda: "3 values of column 'kind' of data are missing",
    )
    with pytest.raises(ValueError, match="3 values of column 'kind'"):
        TrialTasks(build=model, rows=rows, arguments={}).task("trial")
    assert TrialTasks(build=lambda _: xgboost.XGBRegressor(), rows=rows, arguments={}).task("trial").work


def test_what_build_tells_of_a_trial_counts_and_is_of_that_trial_alone():
    told = iter([{"batch_size": 8, "epochs": 5, "class_weight": None}, {}])
    several = tasks(lambda _: (model(), next(told)))
    first, second = task(several, "one"), task(several, "two")
    assert (first.batch_size, first.epochs, first.validation_batch_size) == (8, 5, 8)
    assert (second.batch_size, second.epochs) == (4, 2)
    assert first.run != second.run, "each trial is a run of its own"


def test_a_validation_has_its_own_batches():
    validation = input_data("validation", np.ones((3, 2)), np.ones((3, 1)), None)
    told = task(tasks(model, validation=validation, validation_batch_size=3))
    assert told.validation_batch_size == 3
    assert told.validation_columns == validation.columns


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
        (
            lambda: "a model",
            TypeError,
            "build returned a str; it returns a compiled Keras model, or an estimator of dask_train",
        ),
        (Ridge, OtherKindError, "build returned a Ridge, and without scoring= or cv= a search is over Keras models"),
        (lambda: torch.nn.Linear(2, 1), TypeError, "dt.fit needs loss=, optimizer= as well for a Linear"),
        (
            lambda: (torch.nn.Linear(2, 1), {"callbacks": []}),
            ValueError,
            "build told callbacks .* batch_size, epochs, loss",
        ),
    ],
)
def test_what_build_returns_has_to_be_of_a_kind(made, error, says):
    with pytest.raises(error, match=says):
        tasks(lambda _: made()).task("trial")


def module(_: Any = None) -> Any:
    return torch.nn.Linear(2, 1), {"loss": torch.nn.MSELoss(), "optimizer": torch.optim.SGD, "epochs": 3}


def test_a_module_comes_with_what_fit_takes_for_it_and_its_copy_takes_what_was_trained():
    made = torch.nn.Linear(2, 1)
    spec = tasks(lambda _: (made, module()[1])).task("trial")
    told = spec.work.task
    assert (told.epochs, told.batch_size, told.seed) == (3, 4, 7)
    assert told.configuration["optimizer"]["class"] == "SGD"
    before = made.weight.detach().clone()
    opened = TrainingObjects(told, SimpleNamespace())
    with torch.no_grad():
        opened.module.weight.fill_(5.0)
    best = spec.model({"training": plain(opened.state())})
    assert (best.weight == 5.0).all()
    assert torch.equal(made.weight, before), "the model that was built may be built from again"


@pytest.mark.parametrize(("name", "value"), [("callbacks", [keras.callbacks.Callback()]), ("class_weight", {0: 2.0})])
def test_what_a_kind_does_not_take_ends_the_search(name: str, value: Any) -> None:
    with pytest.raises(OtherKindError, match=f"{name}=.* is not of a Linear, which build returned"):
        tasks(module, **{name: value}).task("trial")


def trees(**params: Any) -> Any:
    return xgboost.XGBClassifier(n_estimators=3, **params)


def labelled(num_rows: int = 8) -> Any:
    return input_data("data", np.ones((num_rows, 2)), np.arange(num_rows) % 2, None)


def test_trees_know_their_rounds_and_take_nothing_that_is_of_epochs():
    of_all = {"rows": TrialRows(data=labelled(), validation=labelled(4), workers=1), "defaults": {"epochs": 5}}
    spec = TrialTasks(build=lambda _: trees(), arguments={"seed": 7, "validation_split": 0.2}, **of_all).task("trial")
    assert (spec.work.task.library, spec.work.task.estimator.n_estimators) == ("xgboost", 3)
    for name, value in (("epochs", 7), ("batch_size", 4), ("shuffle", False)):
        with pytest.raises(OtherKindError, match=f"{name}={value} is not of a XGBClassifier, which build returned"):
            TrialTasks(build=lambda _: trees(), arguments={name: value}, **of_all).task("trial")
    with pytest.raises(ValueError, match="build told epochs of a trial; it can tell nothing beside the model"):
        TrialTasks(build=lambda _: (trees(), {"epochs": 3}), arguments={}, **of_all).task("trial")


def test_processes_are_planned_for_libraries_that_were_imported(monkeypatch):
    importlib.import_module("dask_train.linear_model")  # whose classes come when they are used
    for name in ("keras", "lightgbm", "torch", "xgboost"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    assert [type(each).__name__ for each in searched_kinds_here()] == ["LinearModels"]
    monkeypatch.setitem(sys.modules, "keras", keras)
    assert [type(each).__name__ for each in searched_kinds_here()] == ["KerasModels", "LinearModels"]


def test_processes_are_of_the_kind_of_the_first_model():
    of_each = tasks(lambda trial: trial())
    assert of_each.kind is None
    of_each.task(module)
    assert of_each.kind.framework().name == "torch"
    with pytest.raises(TypeError, match="processes of this search train models of the kind of its first one"):
        of_each.task(model)
    of_each.task(module)


def test_what_build_raises_is_raised():
    def build(_: Any) -> Any:
        raise ZeroDivisionError("of the user's")

    with pytest.raises(ZeroDivisionError, match="of the user's"):
        tasks(build).task("trial")


def test_rows_that_do_not_fit_the_model_are_refused_before_it_is_sent():
    with pytest.raises(ValueError, match="data"):
        tasks(model, data=input_data("data", np.ones((8, 3)), np.ones((8, 1)), None)).task("trial")


def test_trials_of_several_workers_are_refused_what_fit_is():
    def build(_: Any) -> keras.Model:
        made = keras.Sequential([keras.Input((2, 1), batch_size=4), keras.layers.LSTM(1, stateful=True)])
        made.compile(loss="mse")
        return made

    tasks(build).task("trial")
    with pytest.raises(ValueError, match="is stateful"):
        tasks(build, workers=2).task("trial")
