"""Layers that draw, or take statistics of a batch, do as they do outside training while steps are tried."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
from keras import layers

from dask_train.fitting.roles.shares_trial import put_aside

X = np.random.default_rng(0).normal(size=(6, 4)).astype("f4")


def of(*more: Any) -> Any:
    return keras.Sequential([layers.Input((4,)), *more])


@pytest.mark.parametrize(
    "more",
    [
        [layers.Dropout(0.5)],
        [layers.GaussianNoise(1.0)],
        [layers.AlphaDropout(0.5)],
        [layers.BatchNormalization()],
        [layers.Reshape((2, 2)), layers.LSTM(3, dropout=0.5, recurrent_dropout=0.5)],
        [layers.Reshape((2, 2)), layers.Bidirectional(layers.GRU(3, dropout=0.5))],
        [layers.Reshape((2, 2, 1)), layers.RandomFlip()],
        [layers.Reshape((2, 2)), layers.SpatialDropout1D(0.5)],
    ],
    ids=lambda more: more[-1].name,
)
def test_they_do_as_outside_training(more):
    model = of(*more)
    expected = np.array(model(X, training=False))
    with put_aside(model) as is_changed:
        assert is_changed
        np.testing.assert_allclose(np.array(model(X, training=True)), expected, rtol=1e-5)
        np.testing.assert_allclose(np.array(model(X, training=True)), expected, rtol=1e-5)
    assert not any("call" in vars(layer) for layer in model._flatten_layers())
    drawn = (np.array(model(X, training=True)) for _ in range(20))  # now and then no picture is flipped
    assert not all(np.allclose(each, expected, rtol=1e-3) for each in drawn)


class Samples(layers.Layer):
    """Draws by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.seeds = keras.random.SeedGenerator(3)

    def call(self, x: Any, training: bool = False) -> Any:
        return x + keras.random.normal((4,), seed=self.seeds) if training else x


@pytest.mark.parametrize("more", [[layers.Dense(3)], [Samples()], [layers.LayerNormalization()]])
def test_others_are_left(more):
    with put_aside(of(*more)) as is_changed:
        assert not is_changed


def test_they_are_themselves_again_after_an_error():
    model = of(layers.Dropout(0.5))
    with pytest.raises(KeyError), put_aside(model):
        raise KeyError
    assert not any("call" in vars(layer) for layer in model._flatten_layers())
