"""Variables on JAX are known by themselves, not by the arrays that several of them may hold."""

from __future__ import annotations

import os
import types

import pytest

if os.environ.get("KERAS_BACKEND") != "jax":
    pytest.skip("in a process of its own: KERAS_BACKEND=jax", allow_module_level=True)

import keras
import numpy as np
from keras import layers

from dask_train.keras_models.held import unknown_variables
from dask_train.keras_models.serialization import model_to_parts, parts_to_model

pytestmark = pytest.mark.backends


class Averaged(keras.Model):
    """Keeps copies of its weights where Keras does not look."""

    def __init__(self, **settings):
        super().__init__(**settings)
        self.dense = layers.Dense(2)
        self.dense.build((None, 3))
        weights = self.dense.weights
        self.kept = types.SimpleNamespace(
            first=[keras.Variable(weight) for weight in weights], second=[keras.Variable(weight) for weight in weights]
        )

    def call(self, inputs):
        return self.dense(inputs)


def test_variables_that_share_an_array_are_several():
    model = Averaged()
    found = unknown_variables(model)
    assert model.kept.first[0].value is model.dense.kernel.value, "or this tests nothing"
    assert {id(one) for one in found} == {id(one) for one in (*model.kept.first, *model.kept.second)}
    shared = keras.Variable(np.zeros(2))
    model.kept.again, model.kept.once_more = shared, shared
    assert len(unknown_variables(model)) == len(found) + 1


def test_they_travel_as_they_are():
    model = Averaged()
    model.kept.second[0].assign(model.kept.first[0])
    other = parts_to_model(*model_to_parts(model))
    for mine, its in zip(unknown_variables(model), unknown_variables(other), strict=True):
        np.testing.assert_array_equal(mine, its)
    np.testing.assert_array_equal(other.kept.first[0], model.dense.kernel)
