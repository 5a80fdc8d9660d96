"""What metrics have counted, and under which names a step tells it."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from dask_train.fitting.backends import Derived
from dask_train.fitting.roles.gradients import RowFraction
from dask_train.fitting.roles.metrics import Metrics, MetricSums, StepLogs


@pytest.fixture
def model():
    made = keras.Sequential([layers.Input((2,)), layers.Dense(1)])
    made.compile("sgd", "mse")
    made.tracker = keras.metrics.Mean(name="generator_loss")
    made.tracker.update_state([1.0, 2.0])
    return made


def test_logs_are_renewed_from_what_metrics_hold(model):
    """What is known of logs counts; what is not known is a metric's where it has its name."""
    metrics = Metrics(model)
    logs = {"g_loss": tf.constant(0.5), "loss": tf.constant(0.75), "generator_loss": tf.constant(1.0), "other": 1.0}
    derived = Derived(names=("g_loss",), again=lambda: [2 * model.tracker.result()], raw=frozenset(["loss"]))
    found = metrics.renewed(StepLogs(logs, derived))
    assert {name: float(value) for name, value in found.items()} == {"g_loss": 3.0, "generator_loss": 1.5}
    found = metrics.renewed(StepLogs({name: logs[name] for name in ("loss", "other")}))
    assert {name: float(value) for name, value in found.items()} == {"loss": 0.0}
    assert StepLogs.of(None, derived).values == {}


def counting(values):
    model = keras.Sequential([layers.Input((2,)), layers.Dense(1)])
    model.compile("sgd", "mse")
    model.tracker = keras.metrics.Mean(name="mean")
    model.tracker.update_state(values)
    return model


@pytest.mark.parametrize("size", [1, 2, 3])
def test_what_each_worker_has_counted_goes_on_with_as_many_or_others(on_each_rank, size):
    given = [counting([1.0, 2.0]), counting([4.0])]
    parts = on_each_rank(lambda rank, replicas: MetricSums(given[rank], replicas, RowFraction()).held(), 2)
    models = [counting([]) for _ in range(size)]

    def go_on(rank, replicas):
        metrics = MetricSums(models[rank], replicas, RowFraction())
        metrics.carry(parts[rank] if size == 2 else metrics.regrouped(parts, rank))
        metrics.go_on()
        before = metrics.counted()
        models[rank].tracker.update_state([10.0])
        metrics.gather(StepLogs({}))
        return before

    before = on_each_rank(go_on, size)
    assert float(models[0].tracker.result()) == pytest.approx((7.0 + 10.0 * size) / (3 + size))
    if size == 2:
        np.testing.assert_equal(before, parts)  # to the bit, so that going on with one's own rounds as before
