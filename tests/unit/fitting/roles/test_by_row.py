"""Keras' own losses and metrics count as sums over rows, unless they run over the rows; all others do not."""

from __future__ import annotations

import functools

import keras
import pytest
from keras.src.losses.losses import LossFunctionWrapper
from keras.src.metrics.reduction_metrics import MeanMetricWrapper

from dask_train.fitting.roles.by_row import (
    is_loss_by_row,
    is_metric_by_row,
    loss_of_rows_together,
    variables_of_all,
)


def own(y, p):
    return keras.ops.mean(y - p)


class Renamed(keras.losses.MeanSquaredError):
    """Changes nothing of what is computed."""


class Changed(keras.losses.MeanSquaredError):
    """Computes something else."""

    def call(self, y, p):
        return own(y, p)


class Called(keras.losses.MeanSquaredError):
    """Does something else with what is computed."""

    def __call__(self, y, p, sample_weight=None):
        return own(y, p)


class OwnMetric(keras.metrics.AUC):
    """May count anything."""


@pytest.mark.parametrize(
    ("loss", "by_row"),
    [
        (keras.losses.MeanSquaredError(reduction="sum"), True),
        (keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=-1), True),
        (keras.losses.CosineSimilarity(axis=-1), True),
        (keras.losses.CosineSimilarity(axis=0), False),
        (keras.losses.Dice(axis=(1, 2)), True),
        (keras.losses.Dice(axis=(0, 1)), False),
        (keras.losses.Dice(), False),
        (keras.losses.Tversky(), False),
        (LossFunctionWrapper(keras.losses.mean_squared_error), True),
        (LossFunctionWrapper(own), False),
        (LossFunctionWrapper(functools.partial(keras.losses.mean_squared_error)), False),
        (LossFunctionWrapper(keras.losses.MeanSquaredError()), False),
        (Renamed(), True),
        (Changed(), False),
        (Called(), False),
    ],
)
def test_losses(loss, by_row):
    assert is_loss_by_row(loss) is by_row


@pytest.mark.parametrize(
    ("metric", "by_row"),
    [
        (keras.metrics.AUC(), True),
        (keras.metrics.SparseCategoricalAccuracy(), True),
        (keras.metrics.PearsonCorrelation(), True),
        (keras.metrics.PearsonCorrelation(axis=0), False),
        (MeanMetricWrapper(keras.losses.mean_absolute_error), True),
        (MeanMetricWrapper(own), False),
        (OwnMetric(), False),
    ],
)
def test_metrics(metric, by_row):
    assert is_metric_by_row(metric) is by_row


def test_variables_of_compiled_metrics_that_are_given_all_rows():
    model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", metrics=["mae", own])
    assert variables_of_all(model) == set(), "there are none yet"
    model._compile_metrics.build(keras.ops.ones((2, 1)), keras.ops.ones((2, 1)))
    mae, given_all = model._compile_metrics.metrics
    assert variables_of_all(model) == set(map(id, given_all.variables)) != set(map(id, mae.variables))


@pytest.mark.parametrize(
    ("loss", "name"),
    [
        ("mse", None),
        ("crossentropy", None),
        ("dice", "dice"),
        (own, "own"),
        (Changed(name="changed"), "changed"),
        ({"a": "mse", "b": own}, "own"),
        (None, None),
    ],
)
def test_the_name_of_a_loss_that_may_compare_rows(loss, name):
    model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", loss)
    assert loss_of_rows_together(model) == name
