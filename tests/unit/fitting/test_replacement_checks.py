"""What can't be replaced in place is refused before anything starts."""

from __future__ import annotations

import keras
import pytest

from dask_train.driver.settings import RunSettings
from dask_train.fitting.keras_models import KERAS_MODELS
from dask_train.fitting.model_kind import FitCall
from dask_train.fitting.refusals import check_refusals
from dask_train.fitting.settings import KerasSettings


def check_replaced(model, ps, scorer, follows=None):
    run = RunSettings(recovery="in_place", follows=follows)
    settings = KerasSettings(ps=ps, scorer=scorer)
    check_refusals(KERAS_MODELS, FitCall(model=model, x=None, y=None, settings=settings, run=run, workers=2))


class OwnStep(keras.Sequential):
    def train_step(self, data):
        return super().train_step(data)


class OwnMetrics(keras.Sequential):
    def compute_metrics(self, *given, **named):
        return super().compute_metrics(*given, **named)


def made(cls=keras.Sequential):
    model = cls([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model


def test_a_model_with_steps_of_keras():
    check_replaced(made(), 0, 0)


@pytest.mark.parametrize(("cls", "name"), [(OwnStep, "train_step"), (OwnMetrics, "compute_metrics")])
def test_steps_of_ones_own(cls, name):
    with pytest.raises(ValueError, match=f"has a {name} of its own"):
        check_replaced(made(cls), 0, 0)


@pytest.mark.parametrize(("counts", "told"), [((2, 0), "ps=2"), ((0, 1), "scorer=1")])
def test_other_roles(counts, told):
    with pytest.raises(ValueError, match=f"{told} was passed"):
        check_replaced(made(), *counts)


def test_what_has_asked_for_it_is_named():
    with pytest.raises(ValueError, match=r"^workers=\(2, 8\) needs .* Pass a single number of workers\.$"):
        check_replaced(made(OwnStep), 0, 0, (2, 8))
