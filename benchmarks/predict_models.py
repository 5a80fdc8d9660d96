"""The networks and the rows of ``predict.py``, for it and for its peers in processes and environments of their own.

Imports neither Dask nor dask_train: ``.venv-ray`` has none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np


class Case(NamedTuple):
    """A network, and what goes through it.

    Attributes
    ----------
    model
        Makes the Keras model.
    row_shape
        Of a row, float32.
    num_rows, num_parts, batch_size
        How many rows, in how many partitions, and so many at a time.
    """

    model: Callable[[], Any]
    row_shape: tuple[int, ...]
    num_rows: int
    num_parts: int
    batch_size: int


def mlp() -> Any:
    import keras

    layers = [keras.layers.Dense(128, activation="relu"), keras.layers.Dense(64, activation="relu")]
    return keras.Sequential([keras.Input((784,)), *layers, keras.layers.Dense(10, activation="softmax")])


def cnn() -> Any:
    import keras

    layers = []
    for filters in (16, 32, 64):
        layers += [keras.layers.Conv2D(filters, 3, activation="relu"), keras.layers.MaxPooling2D()]
    return keras.Sequential(
        [keras.Input((96, 96, 3)), *layers, keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(10)]
    )


CASES = {
    "MLP": Case(mlp, (784,), 1_100_000, 44, 256),
    "CNN": Case(cnn, (96, 96, 3), 20_000, 40, 64),
}


def tiled(rows: np.ndarray, num_rows: int) -> np.ndarray:
    """So many rows, the same ones again and again."""
    return np.concatenate([rows] * -(-num_rows // len(rows)))[:num_rows]
