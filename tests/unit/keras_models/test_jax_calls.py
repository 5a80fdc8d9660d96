"""Losses and masks on JAX are those of a call, wherever in memory those of others have been."""

from __future__ import annotations

import os
import threading

import pytest

if os.environ.get("KERAS_BACKEND") != "jax":
    pytest.skip("in a process of its own: KERAS_BACKEND=jax", allow_module_level=True)

import jax
import keras
import numpy as np
from keras import layers, ops
from keras.src import backend

from dask_train.fitting.backends import backend_of
from dask_train.keras_models.jax_calls import exact_calls
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
    with exact_calls():
        assert loss_of(model()) == 3
    assert loss_of(model()) != 3, "Keras tells them by itself: this can go"


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


def masks_of_others():
    """How many of ten thousand tensors, none of which has been given a mask, have one."""
    found = 0

    def traced(x):
        nonlocal found
        for _ in range(200):
            masked = [x + 1]
            backend.set_keras_mask(masked[0], "of another")
            goes = threading.Thread(target=masked.clear)  # as it may with a collection of garbage
            goes.start()
            goes.join()
            found += sum(backend.get_keras_mask(other) is not None for other in [x + 2 for _ in range(50)])
        return x

    with exact_calls():
        jax.make_jaxpr(traced)(np.ones(3, "f4"))
    return found


def test_tensors_have_no_masks_of_others():
    assert masks_of_others() == 0


@pytest.mark.parametrize("eagerly", [False, True])
def test_masks_reach_what_comes_after(eagerly):
    told = []

    class Sees(layers.Layer):
        supports_masking = True

        def call(self, x, mask=None):
            told.append(mask is not None)
            return x

    x = np.array([[1, 0], [2, 3]])
    masked = keras.Sequential([layers.Embedding(9, 4, mask_zero=True), Sees(), Sees(), layers.LSTM(5)])
    masked.compile("sgd", "mse", run_eagerly=eagerly)
    expected = masked.predict(x, verbose=0)
    told.clear()
    np.testing.assert_allclose(make().predicting(masked, eagerly=eagerly)(x), expected, rtol=1e-6)
    assert told == [True, True]
