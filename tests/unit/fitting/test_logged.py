"""What a log is told of a training: its parameters, by the names that Keras has for them."""

from __future__ import annotations

import json

import keras
import pytest

from dask_train.data.columns import Columns
from dask_train.fitting.logged import params_of
from dask_train.fitting.spec import FitTask


def own_loss(y, found):
    return keras.ops.mean(keras.ops.square(y - found))


def told(optimizer="sgd", loss="mse", *, built=True, **task):
    layers = [keras.layers.Dense(2, name="one")]
    model = keras.Sequential([*([keras.Input((3,))] if built else []), *layers], name="mine")
    model.compile(optimizer, loss)
    return params_of(model, FitTask(header={}, arrays=[], columns=Columns(features=0), **task))


def test_what_is_none_is_left_out_and_the_rest_is_plain():
    found = told(keras.optimizers.Adam(0.25), epochs=3, batch_size=8, seed=7, class_weight={0: 1.0})
    assert (found["epochs"], found["batch_size"], found["seed"], found["class_weight"]) == (3, 8, 7, {0: 1.0})
    assert (found["model"], found["num_weights"], found["loss"]) == ("mine", 8, "mse")
    assert (found["optimizer"], found["learning_rate"], found["optimizer/beta_1"]) == ("Adam", 0.25, 0.9)
    assert "validation_steps" not in found
    assert None not in found.values()
    json.dumps(found)


def test_a_schedule_is_named():
    schedule = keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.9)
    found = told(keras.optimizers.SGD(schedule))
    assert found["learning_rate"] == "ExponentialDecay"
    assert "optimizer/learning_rate" not in found


def test_a_model_without_weights_has_no_number_of_them():
    assert "num_weights" not in told(built=False)


@pytest.mark.parametrize(
    ("loss", "name"),
    [
        (own_loss, "own_loss"),
        (keras.losses.Huber(name="mine"), "mine"),
        ({"one": own_loss}, "one: own_loss"),
    ],
)
def test_a_loss_is_told_by_its_name(loss, name):
    assert told(loss=loss)["loss"] == name
