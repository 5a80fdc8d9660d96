"""What a process that trains one model after the other would keep of each."""

from __future__ import annotations

import keras
import numpy as np
from keras import layers
from tensorflow.python.framework import ops

from dask_train.fitting.backends import backend_of


def test_the_graphs_of_a_model_are_let_go():
    known = set(ops.gradient_registry.list())
    with backend_of("tensorflow").forgetting():
        model = keras.Sequential([layers.Input((2,)), layers.Dense(1)])
        model.compile("adam", "mse")
        model.fit(np.zeros((4, 2), "f4"), np.zeros((4, 1), "f4"), verbose=0)
        assert set(ops.gradient_registry.list()) > known, "TensorFlow keeps them for good"
    assert set(ops.gradient_registry.list()) == known
    model.fit(np.zeros((4, 2), "f4"), np.zeros((4, 1), "f4"), verbose=0)
