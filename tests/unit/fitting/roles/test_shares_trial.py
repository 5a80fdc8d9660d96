"""Which steps of a user's own workers may take together, as parts of their first batch tell."""

from __future__ import annotations

import random
from contextlib import ExitStack
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers, ops

from dask_train.fitting.backends import StepError, backend_of
from dask_train.fitting.roles.compiled import compiled_of_all
from dask_train.fitting.roles.global_batch import global_batch_of_all
from dask_train.fitting.roles.gradients import RowFraction, summed_gradients
from dask_train.fitting.roles.metrics import Metrics
from dask_train.fitting.roles.reductions import losses_of_all
from dask_train.fitting.roles.shares_trial import compare_shares, has_own_losses
from dask_train.fitting.roles.trackers import means_of_all
from dask_train.keras_models.global_batch import global_batch

ROWS = 12
X = np.random.default_rng(0).normal(size=(ROWS, 4)).astype("f4")
Y = X[:, :2] ** 2


class Nobody:
    """Other workers, of whom nothing may be asked while steps are tried."""

    size, rank = 2, 1

    def channel(self, *_: Any) -> None:
        """Make nothing."""


class Computes(keras.Model):
    """Computes its loss by a function."""

    calls = 0

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        self.calls += 1
        return self.loss_of(y, y_pred)


def squares(y: Any, p: Any) -> Any:
    return ops.square(y - p)


def mean(y: Any, p: Any) -> Any:
    return ops.mean(squares(y, p))


def of(loss: Any, *more: Any, **compiled: Any) -> Any:
    x = layers.Input((4,))
    found = layers.Dense(3, activation="tanh")(x)
    for layer in more:
        found = layer(found)
    model = Computes(x, layers.Dense(2)(found))
    model.loss_of = loss
    settings: dict[str, Any] = {"optimizer": keras.optimizers.SGD(0.1, momentum=0.5, weight_decay=0.1), **compiled}
    model.compile(**settings)
    model.optimizer.build(model.trainable_variables)
    return model


def compared(model: Any, rows: int = ROWS, y: np.ndarray = Y) -> str | None:
    """Try a model's step; all has to be as it was."""
    backend, share = backend_of("tensorflow"), RowFraction()
    share.set(rows, 3 * rows)
    batch = tf.constant(X[:rows]), tf.constant(y[:rows])
    nobody: Any = Nobody()
    with ExitStack() as stack:
        for one in (summed_gradients, losses_of_all, global_batch_of_all):
            stack.enter_context(one(nobody, backend, share))
        stack.enter_context(compiled_of_all(nobody, backend, share, model))
        stack.enter_context(means_of_all(backend, share))

        def make() -> Any:
            return backend.compiled(model.train_step, model, batch, at_once=True)

        step = make()
        held = [*model.variables, *model.optimizer.variables, *(v for m in model.metrics for v in m.variables)]
        before = [np.array(variable) for variable in held]
        calls, drawn = model.calls, random.getstate()
        try:
            return compare_shares(model, Metrics(model), backend, share, (step, make), batch)
        finally:
            for variable, value in zip(held, before, strict=True):
                np.testing.assert_array_equal(np.array(variable), value, err_msg=variable.path)
            assert (model.calls, random.getstate()) == (calls, drawn)
            assert (share.weight, share.rows, share.global_rows, share.trial) == (1 / 3, rows, 3 * rows, None)


EXACT = {
    "mean": mean,
    "sum": lambda y, p: ops.sum(squares(y, p)),
    "both": lambda y, p: mean(y, p) + ops.sum(squares(y, p)),
    "gathered": lambda y, p: ops.std(squares(*global_batch([y, p]))),
    "noise": lambda y, p: mean(y, p + keras.random.normal(ops.shape(p))),
    "a loss of Keras'": keras.losses.Huber(),
    "nothing": lambda y, p: 0.0 * mean(y, p),
}
OTHERS = {
    "root": lambda y, p: ops.sqrt(mean(y, p)),
    "quotient": lambda y, p: ops.sum(squares(y, p) * ops.abs(y)) / ops.sum(ops.abs(y)),
    "largest": lambda y, p: ops.max(squares(y, p)),
    "spread": lambda y, p: ops.std(squares(y, p)),
    "noise": lambda y, p: ops.sqrt(mean(y, p + keras.random.normal(ops.shape(p)))),
}


@pytest.mark.parametrize("name", list(EXACT))
def test_means_sums_and_losses_of_all_rows_are_taken(name):
    assert compared(of(EXACT[name])) is None


@pytest.mark.parametrize("name", list(OTHERS))
def test_others_are_refused(name):
    with pytest.raises(StepError, match=r"a loss of its own.*to compile.*keras.global_batch.*workers=1"):
        compared(of(OTHERS[name]))


@pytest.mark.parametrize("layer", [lambda: layers.Dropout(0.5), layers.BatchNormalization])
def test_layers_of_keras_that_couple_or_draw_change_nothing(layer):
    assert compared(of(mean, layer())) is None
    with pytest.raises(StepError):
        compared(of(OTHERS["root"], layer()))


def test_steps_that_run_eagerly_are_tried_as_well():
    assert compared(of(mean, run_eagerly=True)) is None
    with pytest.raises(StepError):
        compared(of(EXACT["sum"], run_eagerly=True))


@pytest.mark.parametrize("rows", [2, 3, 5])
def test_few_rows_are_enough(rows):
    assert compared(of(mean), rows) is None
    with pytest.raises(StepError):
        compared(of(OTHERS["root"]), rows)


def of_equal_masks(y: Any, p: Any) -> Any:
    """A mean over what a mask leaves, which is one of two values in each row."""
    mask = ops.cast(y > 0, p.dtype)
    return ops.sum(mask * squares(y, p)) / ops.sum(mask)


def test_masks_that_leave_as_much_of_each_row_are_told_of():
    y = np.where(np.arange(ROWS)[:, None] % 2 == np.arange(2), 1.0, -1.0).astype("f4")
    assert "each row of the first batch counts as much as the next" in str(compared(of(of_equal_masks), y=y))
    assert compared(of(mean), y=y) is None
    with pytest.raises(StepError):
        compared(of(of_equal_masks), y=Y - 0.5)


def test_other_rows_that_can_not_be_tried_tell_nothing():
    def takes_some(y: Any, p: Any) -> Any:
        with tf.control_dependencies([tf.debugging.assert_less(y[:, 0], 2.0 * y[:, 1])]):
            return mean(y, p)

    y = np.stack([np.arange(ROWS), np.arange(ROWS) + 1.0], 1).astype("f4")[::-1]
    assert compared(of(takes_some), y=y) is None


def test_what_can_not_be_told_refuses_nothing():
    root = OTHERS["root"]
    assert compared(of(lambda y, p: root(y, p + tf.random.normal(tf.shape(p))))) == "it draws random numbers"
    assert compared(of(lambda y, p: root(y, p) * float("nan"))) == "numbers in its first step are not finite"
    assert compared(of(root), 1) == "its first share of a batch has a single row"
    fixed = of(lambda y, p: root(ops.reshape(y, (-1, 6, 2)), ops.reshape(p, (-1, 6, 2))))
    assert "a step of 12 rows, or of a part of them, fails with" in str(compared(fixed))


def test_optimizers_that_the_model_does_not_hold_are_as_they_were():
    hidden = keras.optimizers.Adam(0.1)

    class Hides(Computes):
        def train_step(self, data):
            x, y = data
            with tf.GradientTape() as tape:
                loss = self.loss_of(y, self(x))
            hidden.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
            return {"loss": loss}

    x = layers.Input((4,))
    model = Hides(x, layers.Dense(2)(x))
    model.loss_of = mean
    model.compile("sgd")
    model.optimizer.build(model.trainable_variables)
    hidden.build(model.trainable_variables)
    assert compared(model) is None
    assert int(hidden.iterations) == 0


class Adds(layers.Layer):
    def call(self, x: Any) -> Any:
        self.add_loss(ops.mean(x**2))
        return x


class Centers(layers.Layer):
    def call(self, x: Any) -> Any:
        return x - ops.mean(x, axis=0)


@pytest.mark.parametrize(
    ("layer", "own"),
    [
        (Adds(), True),
        (Centers(), False),
        (layers.Dense(2, activity_regularizer="l2"), False),
        (layers.Dense(2, activity_regularizer=lambda x: ops.sum(x**2)), True),
    ],
)
def test_layers_have_losses_of_their_own_that_add_some(layer, own):
    model = keras.Sequential([layers.Input((4,)), layer])
    model.compile("sgd", "mse")
    model(X)
    assert has_own_losses(model) is own
    assert has_own_losses(of(mean))
