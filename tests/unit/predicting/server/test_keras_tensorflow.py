"""Steps on TensorFlow are traced as Keras traces its own."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what frameworks warn of when they are imported
    import keras

if keras.backend.backend() != "tensorflow":
    pytest.skip("of TensorFlow alone", allow_module_level=True)

from dask_train.predicting.server.keras_tensorflow import make

X = np.ones((4, 3), "f4")


class Branching(keras.Model):
    """A model whose steps AutoGraph could rewrite, and Keras does not let it."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = keras.layers.Dense(1)

    def call(self, x: Any) -> Any:
        return self.dense(x)

    def predict_step(self, data: Any) -> Any:
        made = super().predict_step(data)
        return made if keras.ops.sum(made) > 0 else -made

    def test_step(self, data: Any) -> Any:
        logs = super().test_step(data)
        return logs if keras.ops.sum(data[0]) > 0 else {}


@pytest.fixture
def model() -> Any:
    made = Branching()
    made.compile("sgd", "mse")
    made(X)
    return made


def test_predicting(model):
    with pytest.raises(Exception, match="Using a symbolic") as theirs:
        model.predict(X, verbose=0)
    with pytest.raises(type(theirs.value), match="Using a symbolic"):
        make().predicting(model, eagerly=False)(X)


def test_testing(model):
    with pytest.raises(Exception, match="Using a symbolic") as theirs:
        model.evaluate(X, X[:, :1], verbose=0)
    with pytest.raises(type(theirs.value), match="Using a symbolic"):
        make().testing(model, lambda rows: (*rows, None), [X, X[:, :1]])([X, X[:, :1]])
