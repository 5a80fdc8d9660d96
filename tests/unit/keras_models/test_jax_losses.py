"""Losses that layers add on JAX are all in each step, wherever in memory those of earlier steps have been."""

from __future__ import annotations

import os

import pytest

if os.environ.get("KERAS_BACKEND") != "jax":
    pytest.skip("in a process of its own: KERAS_BACKEND=jax", allow_module_level=True)

import keras
import numpy as np
from keras import layers, ops

from dask_train.fitting.backends import backend_of
from dask_train.keras_models.jax_losses import losses_of_each_call
from dask_train.predicting.server.keras_jax import make

pytestmark = pytest.mark.backends

X = np.ones((6, 3), "f4")


class Adds(layers.Layer):
    """A loss of 1 for each layer."""

    def call(self, x):
        self.add_loss(ops.mean(ops.ones_like(x)))
        return x


class EveryAddress(set):
    """What a layer remembers when all losses to come lie where its own have been."""

    is_cleared = False

    def __contains__(self, address):
        return not self.is_cleared or super().__contains__(address)

    def clear(self):
        self.is_cleared = True
        super().clear()


def model():
    """Adds 3 to its loss, of zeros; each layer remembers a step."""
    x = layers.Input((3,))
    made = keras.Model(x, Adds()(Adds()(Adds()(x))))
    made.compile("sgd", keras.losses.MeanSquaredError())
    remember(made)
    return made


def remember(model):
    for layer in model.layers:
        vars(layer)["_loss_ids"] = EveryAddress()  # as they are, which Keras' own setattr would copy


def loss_of(model):
    return float(sum(model.stateless_call([], [], X, return_losses=True)[2]))


def test_a_stateless_call_tells_its_own_losses():
    assert loss_of(model()) != 3, "Keras tells them by itself: this can go"
    original = keras.Layer.stateless_call
    with losses_of_each_call():
        assert loss_of(model()) == 3
    assert keras.Layer.stateless_call is original


@pytest.mark.parametrize("eagerly", [False, True])
def test_steps_of_training_have_all_losses(eagerly):
    trained = model()
    trained.run_eagerly = eagerly
    run = backend_of("jax").compiled(trained.train_step, trained, (X, X))
    for rows in (6, 4):  # which are traced one after the other
        remember(trained)
        trained.reset_metrics()
        run((X[:rows], X[:rows]))
        assert float(trained.get_metrics_result()["loss"]) == 3


def test_steps_of_evaluation_have_all_losses():
    evaluated = model()
    run = make().testing(evaluated, lambda columns: (*columns, None), (X, X))
    remember(evaluated)
    assert float(run((X, X))["loss"]) == 3
