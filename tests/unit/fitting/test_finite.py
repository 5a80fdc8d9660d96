"""A trained model whose weights are no numbers any more is told of."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import torch

from dask_train.fitting.finite import describe_bad_validation, describe_bad_weights


def keras_model(dtype="float32"):
    layers = [keras.Input((2,)), keras.layers.Normalization(), keras.layers.Dense(3, name="hidden", dtype=dtype)]
    return keras.Sequential(layers, name="net")


def module(dtype=torch.float32):
    return torch.nn.Sequential(torch.nn.Linear(2, 3, dtype=dtype), torch.nn.BatchNorm1d(3))


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_keras(dtype, bad):
    model = keras_model(dtype)
    assert describe_bad_weights(model) is None
    kernel = np.ones((2, 3), "float32")
    kernel[1, 0] = bad
    model.get_layer("hidden").kernel.assign(kernel)
    assert describe_bad_weights(model).startswith("Weights are NaN or infinite: net/hidden/kernel. ")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_torch(dtype, bad):
    model = module(dtype)
    assert describe_bad_weights(model) is None
    with torch.no_grad():
        model[0].weight[1, 1] = bad
    assert describe_bad_weights(model).startswith("Weights are NaN or infinite: 0.weight. ")


@pytest.mark.parametrize(
    ("history", "is_told"),
    [
        ({"loss": [0.5, 0.4], "val_loss": [np.nan, np.nan]}, True),
        ({"loss": [0.5, 0.4], "val_loss": [0.7, np.nan]}, False),  # the last epoch was not validated
        ({"loss": [np.nan], "val_loss": [np.nan]}, False),  # weights tell
        ({"loss": [0.5]}, False),
        ({}, False),
    ],
)
def test_a_validation_that_is_never_a_number(history, is_told):
    assert ("The validation's loss is NaN" in str(describe_bad_validation(history))) is is_told


def test_only_some_are_named():
    layers = [torch.nn.Linear(1, 1) for _ in range(3)]
    with torch.no_grad():
        for layer in layers:
            layer.weight.fill_(float("nan"))
            layer.bias.fill_(float("nan"))
    assert ": 0.weight, 0.bias, 1.weight and 3 more. " in describe_bad_weights(torch.nn.Sequential(*layers))


def test_other_models_are_not_looked_at():
    assert describe_bad_weights(object()) is None
