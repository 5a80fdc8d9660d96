"""Models in a role process: built, and called as Keras' own steps call them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import keras
import numpy as np

from dask_train.compat.keras.check import check_private_parts
from dask_train.compat.keras.compiled import build_symbolically, compile_loss, compile_metrics, compute_loss
from dask_train.compat.keras.layers import flatten_layers, takes_training
from dask_train.data.columns import Column, Columns
from dask_train.fitting.backends import Backend, backend_of
from dask_train.keras_models import state


def build(model: Any, columns: Columns) -> None:
    """Make weights, metrics and optimizer variables where the model has none yet, for batches of these columns.

    Raises
    ------
    ValueError
        It has none, and the columns are not known, as of data that is streamed and known only after computing.
    VersionMismatchError
        See :func:`~dask_train.compat.keras.check.check_private_parts`.
    """
    check_private_parts(model)  # a Dask worker may have another Keras than the client
    backend = backend_of(keras.backend.backend())
    if backend.symbolic_build and columns.are_known:
        batch = [_spec(column, backend.looked_at_rows) for column in columns]
        build_symbolically(model, keras.utils.pack_x_y_sample_weight(*columns.pack(batch)))
    elif not state.is_built(model):
        if not columns.are_known:
            raise ValueError(
                f"Model {model.name!r} has no weights yet, and what rows look like is not known here. Call it once on "
                "a batch before it is fitted, or give it an Input."
            )
        backend.traced(partial(_first_step, model, columns, backend), columns)
    if columns.are_known and not backend.symbolic_build:
        _build_metrics(model, columns, backend)
    for optimizer, _ in state.held_optimizers(model):
        if not optimizer.built:
            optimizer.build(model.trainable_variables)


def is_looked_at(model: Any, backend: Backend) -> bool:
    """Whether Keras' own ``fit`` would call the model, and its losses, before the first step, to see what they make."""
    parts = (*flatten_layers(model), compile_loss(model), compile_metrics(model))
    return backend.symbolic_build and not all(part.built for part in parts if part is not None)


@contextmanager
def built_already(model: Any) -> Iterator[None]:
    """While it lasts, Keras takes a model as :func:`build` has left it.

    Before its first step Keras' own ``fit`` builds what no step of the user's own asks for, such as a loss next to a
    ``compute_loss``. It does so from its first batch,
    which has another form than the model's if batches come from the run.
    """
    vars(model)["_symbolic_build"] = lambda **_: None
    try:
        yield
    finally:
        del vars(model)["_symbolic_build"]


def is_own(model: Any, name: str) -> bool:
    """Return whether that method, such as ``train_step``, is not Keras' own."""
    return getattr(type(model), name) is not getattr(keras.Model, name)


def called(model: Any, x: Any, training: bool = False) -> Any:
    """Return what the model makes of inputs, as a rule outside training; called as Keras' steps call it."""
    return model(x, training=training) if takes_training(model) else model(x)


def packed(columns: Columns, backend: Backend, batch: Sequence[Any]) -> tuple[Any, Any, Any]:
    """Return inputs, targets and sample weights of a batch, as Keras' ``fit`` takes them in."""
    return columns.pack([backend.as_floatx(array, keras.config.floatx()) for array in batch])


def _spec(column: Column, rows: int | None) -> Any:
    """Return a column of that many rows, or any number of them, as Keras' ``fit`` takes it in."""
    dtype = keras.backend.standardize_dtype(np.dtype(column.dtype))
    return keras.KerasTensor((rows, *column.row_shape), keras.config.floatx() if "float" in dtype else dtype)


def _build_metrics(model: Any, columns: Columns, backend: Backend) -> None:
    """Make the compiled metrics' variables before the first step, where that step is Keras' own.

    They are made for what the model gives when it trains, as Keras makes them in the first step. A graph that makes
    variables is traced a second time without them, though: 0.4 of a second of the 0.9 that the step of a small model
    takes to be traced (TensorFlow 2.21). The means of several outputs' losses are such variables, too.
    """
    compiled = compile_metrics(model)
    own = is_own(model, "train_step") or is_own(model, "compute_metrics")
    if compiled is None or compiled.built or own or model.run_eagerly or columns.labels is None:
        return
    seen: list[tuple[Any, Any]] = []

    def see(batch: list[Any]) -> None:
        x, y, sample_weight = packed(columns, backend, batch)
        y_pred = called(model, x, training=True)
        if keras.tree.is_nested(y_pred) and not is_own(model, "compute_loss"):
            compute_loss(model, x=x, y=y, y_pred=y_pred, sample_weight=sample_weight)
        seen.append((y, y_pred))

    backend.traced(see, columns)
    compiled.build(*seen[-1])


def _first_step(model: Any, columns: Columns, backend: Backend, batch: list[Any]) -> None:
    """Take the step that makes the weights; a step of the user's own need not call the model at all."""
    x, y, sample_weight = packed(columns, backend, batch)
    if is_own(model, "train_step"):
        model.train_step(keras.utils.pack_x_y_sample_weight(x, y, sample_weight))
    else:
        called(model, x)
