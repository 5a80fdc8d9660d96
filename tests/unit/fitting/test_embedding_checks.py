"""Embeddings that are too small for the categories of a column are refused before anything starts."""

from __future__ import annotations

from typing import Any

import keras
import pandas as pd
import pytest

import dask_train as dt

FRAME = pd.DataFrame({"n": [0.0, 1.0, 2.0, 3.0] * 4, "y": [0, 1] * 8})
FRAME["city"] = pd.Categorical(list("abcd") * 4)


def alone(rows: int) -> Any:
    """A model of one column of categories."""
    layers = keras.layers
    return keras.Sequential([keras.Input((1,)), layers.Embedding(rows, 2), layers.Flatten(), layers.Dense(1)])


def by_name(rows: int) -> Any:
    """A model whose inputs go by names."""
    layers = keras.layers
    inputs = {"city": keras.Input((1,), name="city"), "n": keras.Input((1,), name="n")}
    looked_up = layers.Flatten()(layers.Embedding(rows, 2, name="cities")(inputs["city"]))
    return keras.Model(inputs, layers.Dense(1)(layers.Concatenate()([looked_up, inputs["n"]])))


@pytest.mark.parametrize(
    ("made", "features"),
    [(alone, ["city"]), (by_name, {"city": "city", "n": "n"}), (by_name, None)],
    ids=["alone", "by name", "by name, not named"],
)
def test_each_category_has_a_row(made: Any, features: Any) -> None:
    columns = {"features": features, "label": "y"}
    small, large = made(3), made(4)
    for model in (small, large):
        model.compile("sgd", "mse")
    with pytest.raises(ValueError, match=r"'city' has 4 categories, and the embedding .* has input_dim=3"):
        dt.fit(small, FRAME, workers=0, batch_size=8, verbose=0, **columns)
    dt.fit(large, FRAME, workers=0, batch_size=8, verbose=0, **columns)
