"""What metrics have counted, and under which names a step tells it."""

from __future__ import annotations

import keras
import pytest
import tensorflow as tf
from keras import layers

from dask_train.fitting.backends import Derived
from dask_train.fitting.roles.metrics import Metrics, Told


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
    found = metrics.renewed(Told(logs, derived))
    assert {name: float(value) for name, value in found.items()} == {"g_loss": 3.0, "generator_loss": 1.5}
    found = metrics.renewed(Told({name: logs[name] for name in ("loss", "other")}))
    assert {name: float(value) for name, value in found.items()} == {"loss": 0.0}
    assert Told.of(None, derived).values == {}
