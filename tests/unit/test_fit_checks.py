"""What ``fit`` refuses before anything starts."""

from __future__ import annotations

import threading

import dask.array as da
import dask.dataframe as dd
import keras
import numpy as np
import pandas as pd
import pytest
from keras import layers

import dask_train as dt

X, Y = np.zeros((40, 4), "f4"), np.zeros(40, "i8")


def made(loss="sparse_categorical_crossentropy", units=3, **compiled):
    model = keras.Sequential([layers.Input((4,)), layers.Dense(units, activation="softmax")])
    model.compile("sgd", loss, **compiled)
    return model


def uncompiled():
    return keras.Sequential([layers.Input((4,)), layers.Dense(3)])


def optimized(*, scaled=False, built=True, **settings):
    optimizer = keras.optimizers.SGD(**settings)
    model = keras.Sequential([*([layers.Input((4,))] if built else []), layers.Dense(3)])
    model.compile(keras.optimizers.LossScaleOptimizer(optimizer) if scaled else optimizer, "mse")
    return model


class Locked(keras.layers.Layer):
    """Holds what can't be sent."""

    def __init__(self):
        super().__init__()
        self.lock = threading.Lock()

    def call(self, inputs):
        return inputs


def locked():
    model = keras.Sequential([layers.Input((4,)), Locked(), layers.Dense(3)])
    model.compile("sgd", "mse")
    return model


class LockedCallback(keras.callbacks.Callback):
    """Holds what can't be sent."""

    def __init__(self):
        super().__init__()
        self.lock = threading.Lock()


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch):
    """Nothing may be started."""
    from dask_train import fitting

    def refuse(*_, **__):
        pytest.fail("it was about to be started")

    class NoClient:
        """Has two Dask workers, and can do nothing."""

        def scheduler_info(self, n_workers):
            return {"workers": {"a": 1, "b": 2}}

    monkeypatch.setattr(fitting, "client_or_local", lambda *_: NoClient())
    monkeypatch.setattr(fitting, "launch", refuse)


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({"model": lambda: 3}, TypeError, "model is a int; pass a compiled keras.Model"),
        ({"model": uncompiled}, ValueError, r"is not compiled. Call model.compile\("),
        ({"model": lambda: made(jit_compile=True)}, ValueError, "Compile it with jit_compile=False"),
        ({"model": locked}, TypeError, "can't be sent: .*lock"),
        ({"x": None}, ValueError, "there are no inputs"),
        ({"x": X[:0], "y": Y[:0]}, ValueError, "has no rows"),
        ({"x": X[:, :3]}, ValueError, r"does not fit model .* rows of float32 \(3,\) and rows of int64 numbers"),
        ({"x": da.zeros((40, 5), chunks=10)}, ValueError, r"does not fit model .* rows of float64 \(5,\)"),
        ({"model": lambda: made("mse", 3), "y": np.zeros((40, 2))}, ValueError, r"shape \(2,\), and .* \(3,\)"),
        ({"y": Y[:39]}, ValueError, "have 40, 39 rows"),
        ({"y": Y + 3}, ValueError, "labels go from 3 to 3, and the model tells 3 classes apart, 0 to 2"),
        ({"y": Y - 1}, ValueError, "labels go from -1 to -1"),
        ({"batch_size": 1}, ValueError, "batch_size=1 is the global batch, and 2 workers share it"),
        ({"batch_size": 0}, ValueError, "batch_size is 0; it is a whole number of at least 1"),
        ({"workers": 0}, ValueError, "workers is 0; it is a whole number"),
        ({"epochs": 1.5}, ValueError, "epochs is 1.5"),
        ({"initial_epoch": 4}, ValueError, "initial_epoch is 4; it is a whole number from 0 to epochs=1"),
        ({"steps_per_epoch": 0}, ValueError, "steps_per_epoch is 0"),
        ({"shuffle": "batch"}, ValueError, "shuffle is 'batch'; it is True, False or 'partition'"),
        ({"seed": "a"}, ValueError, "seed is 'a'"),
        ({"validation_freq": 0}, ValueError, "validation_freq is 0"),
        ({"validation_split": 1.0}, ValueError, "validation_split is 1.0; it is a fraction"),
        ({"validation_split": 0.999}, ValueError, "leaves one side without rows"),
        ({"validation_data": (X[:, :2], Y)}, ValueError, "The validation data does not fit"),
        ({"callbacks": [print]}, TypeError, "callbacks has a builtin_function_or_method; pass instances of"),
        ({"callbacks": [LockedCallback()]}, TypeError, "Callback LockedCallback can't be sent .* lock"),
        ({"class_weight": [1, 2]}, TypeError, "class_weight is a list; pass a dict"),
        ({"class_weight": {0: 1.0}, "sample_weight": X[:, 0]}, ValueError, "can't both be given"),
        ({"class_weight": {"a": 1.0}}, ValueError, "class_weight has 'a'"),
        ({"resume": True}, ValueError, "say where they are kept: checkpoint="),
        ({"checkpoint": ""}, ValueError, "checkpoint is ''; pass a folder or a URL"),
        ({"ps": -1}, ValueError, "ps is -1; it is a whole number from 0"),
        ({"scorer": 1}, ValueError, "Pass scorer=1 with ps=1 or more and validation_data"),
        (
            {"ps": 2, "model": lambda: optimized(scaled=True)},
            ValueError,
            "ps=2 servers share them. Use ps=1, or compile",
        ),
        ({"ps": 2, "model": lambda: optimized(global_clipnorm=1.0)}, ValueError, "Use ps=1, or clipnorm"),
        (
            {"ps": 1, "model": lambda: optimized(built=False)},
            ValueError,
            "Build it first, or give it an Input, to use ps",
        ),
        ({"unknown": 1}, TypeError, "unexpected keyword argument 'unknown'"),
    ],
)
def test_what_can_not_be(arguments, error, match):
    arguments = {"model": made, "x": X, "y": Y, **arguments}
    model = arguments.pop("model")()
    with pytest.raises(error, match=f"(?s){match}"):
        dt.fit(model, arguments.pop("x"), arguments.pop("y"), **arguments)


def test_a_frame_has_its_target_in_itself():
    frame = dd.from_pandas(pd.DataFrame({"a": [1.0, 2.0], "b": [0, 1]}), npartitions=1)
    with pytest.raises(ValueError, match="leave y and sample_weight out"):
        dt.fit(made(), frame, Y, features=["a"], label="b")
    with pytest.raises(ValueError, match="validation_split needs arrays whose number of rows is known"):
        dt.fit(made(), frame, features=["a"], label="b", validation_split=0.5)


@pytest.mark.parametrize(("value", "match"), [("every_steps", "every_steps is 0"), ("every_s", "every_s is 0")])
def test_how_often_checkpoints_are_kept(value, match):
    with pytest.raises(ValueError, match=match):
        dt.Checkpoint("here", **{value: 0})
