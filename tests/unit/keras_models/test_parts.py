"""Parts of a model are known by the same keys in a copy of it."""

from __future__ import annotations

import keras
import numpy as np
import pytest
from keras import layers

from dask_train.keras_models.parts import holds_trained, parts_by_key, trained_within
from dask_train.keras_models.serialization import model_to_parts, parts_to_model


class Generating(keras.Model):
    """Has models within it, one of which is built by a call, and a metric and an optimizer of its own."""

    def __init__(self):
        super().__init__()
        self.generator = keras.Sequential([layers.Dense(3), layers.Dropout(0.5), layers.Dense(2)])
        self.critic = keras.Sequential([layers.Input((2,)), layers.Dense(1), layers.BatchNormalization()])
        self.seen = keras.metrics.Mean(name="seen")
        self.other = {"optimizer": keras.optimizers.SGD(0.5)}

    def call(self, x):
        return self.critic(self.generator(x))


def functional():
    x = keras.Input((4,))
    dense = layers.Dense(4)
    return keras.Model(x, layers.Dense(1)(dense(dense(x))))


def sequential():
    return keras.Sequential([layers.Dense(2), layers.Dense(1)])


@pytest.mark.parametrize("make", [functional, sequential, Generating])
@pytest.mark.parametrize("built", [False, True])
def test_a_copy_has_the_same_parts_under_the_same_keys(make, built):
    model = make()
    model.compile("adam", keras.losses.Huber(), metrics=[keras.metrics.MeanAbsoluteError(name="far")])
    if built:
        model.fit(np.ones((2, 4)), np.ones((2, 1)), verbose=0)
    mine, theirs = parts_by_key(model), parts_by_key(parts_to_model(*model_to_parts(model)))
    assert [key for key in mine if type(mine[key]) is not type(theirs.get(key))] == []
    assert all(mine[key].shape == theirs[key].shape for key in mine if isinstance(mine[key], keras.Variable))
    kinds = (keras.optimizers.Optimizer, keras.losses.Huber, keras.metrics.MeanAbsoluteError, layers.Dense)
    assert all(any(isinstance(each, kind) for each in mine.values()) for kind in kinds)
    assert mine["model"] is model


def test_no_key_stands_for_another_layer_once_building_has_added_one():
    model = sequential()
    before = parts_by_key(model)
    model.build((None, 4))
    after = parts_by_key(model)
    assert [key for key in before if key in after and before[key] is not after[key]] == []
    assert after["model"] is model


def test_another_model_has_layers_of_this_one_that_training_changes():
    model = functional()
    parts = parts_by_key(model)
    inner = keras.Model(model.inputs, model.layers[1].output)
    assert trained_within(inner, parts) is model.layers[1]
    assert trained_within(model, parts) is trained_within(functional(), parts) is trained_within([inner], parts) is None
    assert holds_trained({"probes": [inner]}, parts)
    assert not holds_trained([1, {"model": model}], parts)
    model.layers[1].trainable = False
    assert trained_within(inner, parts) is None


def test_layers_that_training_does_not_change_may_be_in_another_model():
    scale, drop, normal = (
        layers.Normalization(),
        layers.Dropout(0.5),
        layers.BatchNormalization(center=False, scale=False),
    )
    x = keras.Input((4,))
    scale.adapt(np.ones((2, 4)))
    parts = parts_by_key(keras.Model(x, layers.Dense(1)(normal(drop(scale(x))))))
    assert trained_within(keras.Sequential([scale, drop, layers.Dense(2)]), parts) is None
    assert trained_within(keras.Sequential([scale, normal]), parts) is normal


def test_a_metric_that_does_not_travel_with_the_model_is_no_part_of_it():
    model = functional()
    model.seen = keras.metrics.Mean()
    assert all(each is not model.seen for each in parts_by_key(model).values())
