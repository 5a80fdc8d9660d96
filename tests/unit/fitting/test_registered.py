"""A kind of model that the user describes: how it is made known, and what is checked before anything starts."""

from __future__ import annotations

import sys
from types import ModuleType

import keras
import numpy as np
import pandas as pd
import pytest
import torch
import xgboost

import dask_train as dt
from dask_train.fitting import kinds
from dask_train.fitting.kinds import searched_kind_of
from dask_train.searching.checks import check_built
from dask_train.trainers import LoopSettings, RankState, Trainer, TrainSpec


class Mean(TrainSpec):
    """Adds up rows."""

    def worker(self, session, loop):
        held = {"total": 0.0}
        loop.keep(RankState().shared("total", lambda: held["total"], lambda value: held.update(total=value)))
        for _ in loop.epochs():
            for (rows,) in loop.batches():
                held["total"] += float(rows.sum())
                loop.step_done()
            loop.epoch_done(total=held["total"])


class Model:
    """Is given a total."""

    total = None


class Totals(Trainer):
    """Trains them."""

    model_class = Model

    def spec(self, model, settings, num_features):
        if num_features != 2:
            raise ValueError(f"rows have {num_features} features")
        return Mean()

    def take(self, model, trained):
        model.total = trained["total"]


@pytest.fixture(autouse=True)
def _registered(monkeypatch):
    module = ModuleType("models_of_mine")
    module.Model = Model
    monkeypatch.setitem(sys.modules, "models_of_mine", module)
    monkeypatch.setattr(Model, "__module__", "models_of_mine")
    before = dict(kinds.REGISTERED)
    dt.register_trainer(Totals())
    yield
    kinds.REGISTERED.clear()
    kinds.REGISTERED.update(before)


def test_it_is_trained_in_this_process():
    model = Model()
    result = dt.fit(model, np.ones((10, 2)), epochs=2, batch_size=4, workers=0)
    assert model.total == 40.0
    assert result.history == {"total": [20.0, 40.0]}
    assert (result.ledger.trained, result.ledger.dropped) == (20, 0)


def a_module(base):
    """Return an instance of a class that is made here, and so can't be found by its name."""

    class Mine(base):
        total = None

    class Trained(Totals):
        model_class = Mine

    dt.register_trainer(Trained())
    return Mine()


@pytest.mark.parametrize("base", [torch.nn.Module, keras.Model, xgboost.XGBRegressor, Model])
def test_a_class_is_trained_by_its_own_trainer_whatever_it_extends(base):
    model = a_module(base)
    dt.fit(model, np.ones((10, 2)), epochs=1, batch_size=4, workers=0)
    assert model.total == 20.0
    with pytest.raises(
        TypeError, match=r"fit takes no loss= for a model of type Mine, a \S*test_registered\S*\.Mine\. Besides"
    ):
        dt.fit(model, np.ones((10, 2)), loss="mse", workers=0)
    assert searched_kind_of(model) is kinds.REGISTERED[type(model)]
    check_built(model)


def test_a_trainer_of_torch_modules_takes_no_keras_model():
    assert kinds.registered_class(a_module(keras.Model), {torch.nn.Module: "t"}) is None
    on_torch = type("OnTorch", (keras.Model, torch.nn.Module), {"__init__": torch.nn.Module.__init__})
    assert kinds.registered_class(on_torch(), {torch.nn.Module: "t"}) is None
    assert kinds.registered_class(on_torch(), {torch.nn.Module: "t", on_torch: "k"}) is on_torch


def test_a_subclass_without_a_trainer_has_that_of_its_class():
    class Below(type(a_module(Model))):
        pass

    dt.fit(model := Below(), np.ones((10, 2)), epochs=1, workers=0)
    assert model.total == 20.0


def test_categories_mean_in_another_fit_what_they_meant_in_the_first():
    frame = pd.DataFrame({"a": pd.Categorical(["u", "v", "v"], categories=["u", "v"]), "b": [0, 0, 0]})
    dt.fit(model := Model(), frame, features=["a", "b"], workers=0)
    assert model.total == 2.0
    other = frame.assign(a=frame["a"].cat.reorder_categories(["v", "u"]))
    dt.fit(model, other, features=["a", "b"], workers=0)
    assert model.total == 2.0, "the same rows, whatever the order of categories"


def test_what_the_trainer_refuses_starts_nothing():
    with pytest.raises(ValueError, match="rows have 3 features"):
        dt.fit(Model(), np.ones((10, 3)), workers=0)
    with pytest.raises(ValueError, match="rows have None features"):
        dt.fit(Model(), np.ones((10, 2, 2)), workers=0)


def test_arguments_that_it_does_not_take_are_told_with_the_nearest_one():
    with pytest.raises(TypeError, match=r"takes no epoch= for a model of type Model, .*models_of_mine.Model.*epochs"):
        dt.fit(Model(), np.ones((10, 2)), epoch=3, workers=0)


def test_a_rule_to_stop_by_scores_of_validation_is_refused():
    with pytest.raises(ValueError, match="stop looks at val_total"):
        dt.fit(Model(), np.ones((10, 2)), workers=0, stop="val_total < 1")


def test_a_best_score_needs_its_direction(tmp_path):
    best = dt.Checkpoint(tmp_path, best="total", restore_best=True)
    with pytest.raises(ValueError, match="Pass mode='min' or mode='max'"):
        dt.fit(Model(), np.ones((10, 2)), workers=0, checkpoint=best)


@pytest.mark.parametrize("wrong", [Totals, Mean(), None])
def test_what_is_no_trainer_is_refused(wrong):
    with pytest.raises(TypeError, match="pass an instance of a class that extends"):
        dt.register_trainer(wrong)


def test_settings_have_to_be_those_of_a_loop():
    class Odd(Totals):
        settings = dict

    with pytest.raises(TypeError, match=r"extend dask_train\.trainers\.LoopSettings"):
        dt.register_trainer(Odd())
    assert issubclass(Totals.settings, LoopSettings)
