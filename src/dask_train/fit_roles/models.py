"""Models in a role process: put together as they were sent, and built."""

from __future__ import annotations

import json
from typing import Any

import keras
import numpy as np

from dask_train.data.columns import Column
from dask_train.fit_roles.layout import Layout, filled
from dask_train.frameworks.keras import state
from dask_train.frameworks.keras.serialization import parts_to_model


def made(header: dict[str, Any], arrays: list[np.ndarray]) -> Any:
    """The model; the process takes over the sender's ``floatx`` and dtype policy, which layers made later ask for."""
    keras.config.set_floatx(header["floatx"])
    keras.config.set_dtype_policy(keras.dtype_policies.deserialize(json.loads(header["dtype_policy"])))
    return parts_to_model(header, arrays)


def build(model: Any, layout: Layout, columns: tuple[Column, ...]) -> None:
    """Make weights and optimizer variables where the model has none yet, for inputs of these columns."""
    if not all(layer.built for layer in model._flatten_layers()):
        batch = filled(layout.x, lambda place: keras.ops.zeros((1, *columns[place].row_shape), _dtype(columns[place])))
        model(batch)
    for optimizer, _ in state.held_optimizers(model):
        if not optimizer.built:
            optimizer.build(model.trainable_variables)


def _dtype(column: Column) -> str:
    dtype = np.dtype(column.dtype)
    return keras.config.floatx() if dtype.kind == "f" else dtype.name
