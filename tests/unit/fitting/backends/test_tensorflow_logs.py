"""Which logs of a step depend on what metrics have counted, and what they are when these hold something else."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from dask_train.fitting.backends import Derived, backend_of

BACKEND = backend_of("tensorflow")


class Own(keras.Model):
    """Logs of all kinds."""

    def __init__(self):
        super().__init__()
        self.dense = layers.Dense(1)
        self.tracker, self.auc = keras.metrics.Mean(name="tracker"), keras.metrics.AUC(name="auc")
        self.precision, self.recall = keras.metrics.Precision(name="p"), keras.metrics.Recall(name="r")
        self.num_steps = 0

    def call(self, x):
        return self.dense(x)

    def train_step(self, data):
        self.num_steps += 1
        x, y = data
        with tf.GradientTape() as tape:
            y_pred = self(x, training=True)
            loss = keras.ops.mean(keras.ops.square(y_pred - y))
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        self.tracker.update_state(loss)
        labels = keras.ops.cast(y > 0, "float32")
        for metric in (self.auc, self.precision, self.recall):
            metric.update_state(labels, keras.ops.sigmoid(y_pred))
        p, r = self.precision.result(), self.recall.result()
        return {
            "alias": self.tracker.result(),
            "area": self.auc.result(),
            "f1": 2 * p * r / (p + r + 1e-7),
            "raw": loss,
            "mixed": loss - self.tracker.result(),
            "rate": self.optimizer.learning_rate,
            "hidden": tf.function(self.tracker.result, autograph=False)(),
        }


def stepped(**compiled):
    """A model of which some steps were taken, and the step."""
    keras.utils.set_random_seed(1)
    model = Own()
    model.compile("sgd", **compiled)
    random = np.random.default_rng(0)
    batches = [(tf.constant(random.normal(size=(n, 3)), "float32"), tf.ones((n, 1))) for n in (5, 3)]
    step = BACKEND.compiled(model.train_step, model, batches[0])
    for batch in batches:
        logs = step(batch)
    return model, step, logs


def test_what_depends_on_metrics_alone_is_computed_anew():
    model, step, logs = stepped()
    traced = model.num_steps
    derived = BACKEND.derived(step, [variable for metric in model.metrics for variable in metric.variables])
    assert set(derived.names) == {"alias", "area", "f1"}
    assert derived.raw == {"raw", "rate"}, "of a nested function nothing is known, and what is mixed is not raw"
    for name, value in zip(derived.names, derived.again(), strict=True):
        assert float(value) == pytest.approx(float(logs[name]), rel=1e-5)
    for metric in model.metrics:
        for variable in metric.variables:
            variable.assign(3 * variable + 1)
    found = {name: float(value) for name, value in zip(derived.names, derived.again(), strict=True)}
    p, r = float(model.precision.result()), float(model.recall.result())
    wanted = {"alias": model.tracker.result(), "area": model.auc.result(), "f1": 2 * p * r / (p + r + 1e-7)}
    assert found == pytest.approx({name: float(value) for name, value in wanted.items()}, rel=1e-5)
    assert model.num_steps == traced, "the step is not traced again"


def test_nothing_is_known_of_what_is_run_eagerly():
    model, step, _ = stepped(run_eagerly=True)
    derived = BACKEND.derived(step, [variable for metric in model.metrics for variable in metric.variables])
    assert derived == Derived()
    assert list(derived.again()) == []


def test_what_is_constant():
    seen = {}

    @tf.function(input_signature=[tf.TensorSpec((None, 2))], autograph=False)
    def step(x):
        seen.update(rows=BACKEND.is_constant(tf.shape(x)[0]), known=BACKEND.is_constant(tf.constant(2.0)))
        seen.update(number=BACKEND.is_constant(0.5))
        return x

    step(tf.ones((3, 2)))
    assert seen == {"rows": False, "known": True, "number": True}
    eager = [0.5, np.float32(2.0), tf.constant(2.0), 3, np.int64(3), tf.shape(tf.ones((3, 2)))[0]]
    assert [BACKEND.is_constant(number) for number in eager] == [True] * 3 + [False] * 3
