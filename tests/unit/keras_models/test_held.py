"""Optimizers and variables are found wherever a model keeps them."""

from __future__ import annotations

import types
from dataclasses import dataclass
from typing import Any

import keras
import pytest
from keras import layers

from dask_train.keras_models import state
from dask_train.keras_models.held import put, unknown_variables

tf = pytest.importorskip("tensorflow")


@dataclass
class Kept:
    """What a model may keep things in."""

    value: Any
    itself: Any = None


class Weighted(keras.losses.Loss):
    """Has a variable of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.beta = tf.Variable(0.5, trainable=False)

    def call(self, y_true, y_pred):
        return self.beta * keras.ops.mean(keras.ops.square(y_true - y_pred), -1)


class Model(keras.Model):
    """Keeps things in all kinds of places."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = layers.Dense(1)
        self.one = tf.Variable([1.0, 2.0])
        self.kept = Kept({"optimizer": keras.optimizers.SGD(), "number": tf.Variable(3)})
        self.kept.itself = self.kept
        self.space = types.SimpleNamespace(optimizers=[keras.optimizers.Adam()], layer=layers.Dense(2), model=self)
        self.space.layer.build((None, 3))
        self.text = tf.Variable("not a number")
        self.known = self.dense

    def call(self, inputs):
        return self.dense(inputs)


@pytest.fixture
def model():
    found = Model()
    found.compile("rmsprop", Weighted())
    found(tf.ones((1, 3)))
    return found


def test_optimizers(model):
    found = {id(optimizer): places for optimizer, places in state.held_optimizers(model)}
    assert len(found) == 3
    assert [0, "optimizer"] in [place for places in found.values() for place in places]
    assert [[0, "kept", "value", "optimizer"]] in found.values()
    assert [[0, "space", "optimizers", 0]] in found.values()


def test_one_is_put_where_it_was(model):
    other = keras.optimizers.Lion()
    for place in ([0, "kept", "value", "optimizer"], [0, "space", "optimizers", 0], [0, "kept", "itself"]):
        put(list(model._flatten_layers()), place, other)
    assert model.kept.value["optimizer"] is model.space.optimizers[0] is model.kept.itself is other


def test_variables_that_keras_does_not_know(model):
    model.fit(tf.ones((2, 3)), tf.ones((2, 1)), verbose=0)  # metrics and optimizers have theirs now
    found = unknown_variables(model)
    assert sorted(tuple(variable.shape) for variable in found) == [(), (), (2,), (2,), (3, 2)]
    assert any(variable is model.one for variable in found)
    assert any(variable is model.loss.beta for variable in found)
