"""Models in a role process: put together as they were sent, and built."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from typing import Any

import keras
import numpy as np

from dask_train.data.columns import Column
from dask_train.fitting.backends import Backend, backend_of
from dask_train.fitting.layout import Layout
from dask_train.keras_models import state
from dask_train.keras_models.private_parts import check_private_parts
from dask_train.keras_models.serialization import parts_to_model


def made(header: dict[str, Any], arrays: list[np.ndarray]) -> Any:
    """The model; the process takes over the sender's ``floatx`` and dtype policy, which layers made later ask for."""
    keras.config.set_floatx(header["floatx"])
    keras.config.set_dtype_policy(keras.dtype_policies.deserialize(json.loads(header["dtype_policy"])))
    return parts_to_model(header, arrays)


def build(model: Any, layout: Layout, columns: Sequence[Column]) -> None:
    """Make weights and optimizer variables where the model has none yet, for batches of these columns.

    Raises
    ------
    ValueError
        It has none, and the columns are not known, as of data that is streamed and known only after computing.
    VersionMismatchError
        See :func:`~dask_train.keras_models.private_parts.check_private_parts`.
    """
    check_private_parts(model)  # a Dask worker may have another Keras than the client
    backend = backend_of(keras.backend.backend())
    if backend.symbolic_build and columns:
        columns_of_batch = [_spec(column) for column in columns]
        model._symbolic_build(data_batch=keras.utils.pack_x_y_sample_weight(*layout.pack(columns_of_batch)))
    elif not state.is_built(model):
        if not columns:
            raise ValueError(
                f"Model {model.name!r} has no weights yet, and what rows look like is not known here. Call it once on "
                "a batch before it is fitted, or give it an Input."
            )
        backend.traced(partial(_first_step, model, layout, backend), columns)
    for optimizer, _ in state.held_optimizers(model):
        if not optimizer.built:
            optimizer.build(model.trainable_variables)


def is_own(model: Any, name: str) -> bool:
    """Whether that method, such as ``train_step``, is not Keras' own."""
    return getattr(type(model), name) is not getattr(keras.Model, name)


def called(model: Any, x: Any) -> Any:
    """What the model makes of inputs outside training; called as Keras' steps call it."""
    return model(x, training=False) if model._call_has_training_arg else model(x)


def _spec(column: Column) -> Any:
    """A column of any number of rows, as Keras' ``fit`` takes it in."""
    dtype = keras.backend.standardize_dtype(np.dtype(column.dtype))
    return keras.KerasTensor((None, *column.row_shape), keras.config.floatx() if "float" in dtype else dtype)


def _first_step(model: Any, layout: Layout, backend: Backend, columns: list[Any]) -> None:
    """What makes the weights: with a step of the user's own that step, which need not call the model at all."""
    x, y, sample_weight = layout.pack([backend.as_floatx(column, keras.config.floatx()) for column in columns])
    if is_own(model, "train_step"):
        model.train_step(keras.utils.pack_x_y_sample_weight(x, y, sample_weight))
    else:
        called(model, x)
