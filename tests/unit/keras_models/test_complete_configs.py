"""Losses and metrics compute on the far side what they compute here, also where Keras' configs leave settings out."""

from __future__ import annotations

import keras
import numpy as np
import pytest

from dask_train.fitting import checks as fit_checks
from dask_train.keras_models.complete_configs import complete_configs
from dask_train.keras_models.serialization import model_to_parts, parts_to_model

RANDOM = np.random.default_rng(0)
LOSSES = {
    "delta": (lambda: keras.losses.Huber(delta=0.2), (4, 3)),
    "axis": (lambda: keras.losses.CosineSimilarity(axis=1), (4, 3)),
    "what is told": (lambda: keras.losses.BinaryCrossentropy(from_logits=True, label_smoothing=0.1), (4, 3)),
}


def made(loss, metrics=()):
    model = keras.Sequential([keras.layers.Input((4, 3)), keras.layers.Identity()])
    model.compile("sgd", loss, metrics=list(metrics))
    return model


@pytest.mark.parametrize("name", LOSSES)
def test_losses(name):
    make, shape = LOSSES[name]
    y = RANDOM.integers(0, 2, (5, *shape)).astype("float32")
    found = RANDOM.normal(size=(5, 4, 3)).astype("float32")
    told = parts_to_model(*model_to_parts(made(make()))).loss
    np.testing.assert_array_equal(np.asarray(told(y, found)), np.asarray(make()(y, found)))


def test_precision():
    told = parts_to_model(*model_to_parts(made(keras.losses.MeanSquaredError(dtype="float64")))).loss
    assert told.dtype == "float64"


def test_metrics():
    y, found = RANDOM.normal(size=(2, 5, 4, 3)).astype("float32")
    metric = keras.metrics.CosineSimilarity(axis=1)
    model = parts_to_model(*model_to_parts(made("mse", [metric])))
    results = model.evaluate(found, y, verbose=0, return_dict=True)
    metric.update_state(y, found)
    assert results["cosine_similarity"] == pytest.approx(float(metric.result()))


def test_keras_is_left_as_it_was():
    before = keras.losses.Huber.get_config
    with complete_configs():
        assert keras.losses.Huber(0.2).get_config()["delta"] == 0.2
    assert keras.losses.Huber.get_config is before


def test_classes_are_counted_along_the_axis():
    model = made(keras.losses.SparseCategoricalCrossentropy(axis=1))
    assert parts_to_model(*model_to_parts(model)).loss._fn_kwargs["axis"] == 1
    assert fit_checks.num_classes_of(model) == 4
    assert fit_checks.num_classes_of(made("sparse_categorical_crossentropy")) == 3
