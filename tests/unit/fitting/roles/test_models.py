"""Models are put together in a role process as they were sent, and built for the data."""

from __future__ import annotations

import keras
import numpy as np
import pytest
from keras import layers

from dask_train.data.columns import Column, Columns
from dask_train.fitting.roles.models import build, called, is_own

LAYOUT = Columns(features=0, labels=1)
COLUMNS = (Column(dtype="<f8", row_shape=(3,)), Column(dtype="<f8", row_shape=()))


def unbuilt(cls=keras.Sequential):
    model = cls([layers.Dense(4), layers.Dense(1)])
    model.compile(keras.optimizers.Adam(), "mse")
    return model


def test_weights_and_what_optimizers_hold_are_made_for_the_columns():
    model = unbuilt()
    build(model, LAYOUT.with_rows(COLUMNS))
    assert [tuple(weight.shape) for weight in model.weights] == [(3, 4), (4,), (4, 1), (1,)]
    assert model.optimizer.built
    kept = [value.numpy().copy() for value in model.weights]
    build(model, LAYOUT)
    for value, before in zip(model.weights, kept, strict=True):
        np.testing.assert_array_equal(value, before, "it is built already")


def test_columns_that_are_not_known_make_no_weights():
    with pytest.raises(ValueError, match="has no weights yet, and what rows look like is not known here"):
        build(unbuilt(), LAYOUT)


class Stepping(keras.Sequential):
    """Only its own step knows what it is called with."""

    def train_step(self, data):
        x, _ = data
        self(x[:, :2])
        return {}


def test_a_step_of_ones_own_makes_the_weights():
    model = unbuilt(Stepping)
    build(model, LAYOUT.with_rows(COLUMNS))
    assert tuple(model.weights[0].shape) == (2, 4)
    assert is_own(model, "train_step")
    assert not is_own(model, "test_step")


class Several(keras.Model):
    """Gives one thing in training and another outside."""

    def __init__(self):
        super().__init__()
        self.one, self.other = layers.Dense(1, name="one"), layers.Dense(1, name="other")

    def call(self, x, training=False):
        return {"one": self.one(x), "other": self.other(x)} if training else self.one(x) + self.other(x)


@pytest.mark.parametrize("make", [unbuilt, lambda: unbuilt(Stepping), Several])
def test_a_step_of_keras_is_traced_once(make):
    tf = pytest.importorskip("tensorflow")
    model = make()
    several = isinstance(model, Several)
    model.compile("adam", "mse", metrics={"one": ["mae"], "other": ["mse"]} if several else ["mae"])
    columns = LAYOUT if not several else Columns(features=0, labels={"one": 1, "other": 2})
    build(model, columns.with_rows((*COLUMNS, *COLUMNS[1:] * several)))
    assert model._compile_metrics.built == (not isinstance(model, Stepping)), "a step of one's own makes its own"
    traced = []

    @tf.function(autograph=False)
    def step(batch):
        traced.append(True)
        return model.train_step(batch)

    y = np.ones(4, "f4")
    step((np.ones((4, 3), "f4"), {"one": y, "other": y} if several else y))
    assert len(traced) == 1
    if several:
        assert set(model.get_metrics_result()) == {"loss", "one_loss", "other_loss", "one_mae", "other_mse"}


class Asked(keras.Model):
    def call(self, x, training=None):
        return x * 0 + (-1.0 if training is None else float(training))


class NotAsked(keras.Model):
    def call(self, x):
        return x + 1


@pytest.mark.parametrize(("model", "told"), [(Asked(), 0.0), (NotAsked(), 2.0)])
def test_models_are_called_as_outside_training(model, told):
    assert float(called(model, np.ones((1, 1), "f4"))[0, 0]) == told
