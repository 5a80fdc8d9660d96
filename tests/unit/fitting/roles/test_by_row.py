"""Keras' own losses and metrics count as sums over rows, unless they run over the rows; all others do not."""

from __future__ import annotations

import functools
import inspect

import keras
import numpy as np
import pytest
from keras.src.losses.losses import LossFunctionWrapper
from keras.src.metrics.reduction_metrics import MeanMetricWrapper

from dask_train.fitting.roles.by_row import (
    give_all_rows,
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
        (keras.losses.Circle(), False),
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


_random = np.random.default_rng(0)
_SHARES = _random.dirichlet([1.0] * 4, 6).astype("f4")
ROWS = [
    ((_random.random((6, 4)) > 0.5).astype("f4"), _SHARES),
    (_random.integers(0, 4, (6, 1)), _SHARES),
    (_random.integers(1, 4, (6, 3)), _random.normal(size=(6, 8, 5)).astype("f4")),
]
ALONG_AXIS = {"Dice": {"axis": (1,)}, "Tversky": {"axis": (1,)}}
LOSSES = [name for name, one in vars(keras.losses).items() if inspect.isclass(one) and one is not keras.losses.Loss]


@pytest.mark.parametrize("name", LOSSES)
def test_each_loss_of_keras_goes_by_row_if_its_values_do(name):
    loss = getattr(keras.losses, name)(**ALONG_AXIS.get(name, {}))
    tried = []
    for y, p in ROWS:
        try:
            whole, *parts = (np.array(loss.call(y[rows], p[rows])) for rows in (slice(6), slice(2), slice(2, 6)))
        except Exception:  # noqa: S112 - other targets
            continue
        pairs = zip((whole[:2], whole[2:]), parts, strict=True)
        tried.append(all(a.shape == b.shape and np.allclose(a, b, rtol=1e-4) for a, b in pairs))
    assert tried
    assert is_loss_by_row(loss) is all(tried)


def test_a_loss_of_keras_that_is_not_known_is_given_all_rows(monkeypatch):
    monkeypatch.setattr(own, "__module__", "keras.src.losses.losses")
    assert not is_loss_by_row(LossFunctionWrapper(own))


def test_metrics_of_numbers_without_an_axis_are_given_all_rows():
    numbers, rows = keras.ops.ones((2,)), keras.ops.ones((2, 1))
    mae, auc = keras.metrics.MeanAbsoluteError(), keras.metrics.AUC()
    for metric in (mae, auc):
        assert not give_all_rows(metric, numbers, rows)
        assert is_metric_by_row(metric)
    assert give_all_rows(mae, numbers, numbers)
    assert not is_metric_by_row(mae)
    assert not give_all_rows(auc, numbers, numbers)


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
