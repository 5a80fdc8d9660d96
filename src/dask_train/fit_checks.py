"""What ``fit`` refuses before anything starts: models, arguments and data that can't be trained with."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from dask_train.fit_roles.backends import BACKENDS
from dask_train.fit_roles.layout import filled, leaves
from dask_train.fitted_data import FitData


def check_model(model: Any) -> None:
    """A compiled Keras model on a backend that can be trained with.

    Raises
    ------
    TypeError, ValueError
        It is none.
    """
    import keras

    if not isinstance(model, keras.Model):
        raise TypeError(f"model is a {type(model).__name__}; pass a compiled keras.Model.")
    if not model.compiled:
        raise ValueError(
            f"Model {model.name!r} is not compiled. Call model.compile(optimizer, loss, metrics=[...]) first."
        )
    backend = keras.backend.backend()
    if backend not in BACKENDS:
        raise ValueError(
            f"Keras runs on {backend!r} here, and fit trains on {', '.join(BACKENDS)}. Set KERAS_BACKEND before Keras "
            "is imported, or train with dt.train and a loop of your own."
        )
    if model.jit_compile is True:
        raise ValueError(
            f"Model {model.name!r} is compiled with jit_compile=True, and what XLA compiles can't agree with other "
            "processes in mid-step. Compile it with jit_compile=False."
        )
    if model.optimizer is None:
        raise ValueError(f"Model {model.name!r} is compiled without an optimizer. Pass one to model.compile.")


def check_counts(**counts: Any) -> None:
    """Whole numbers of at least 1, or None.

    Raises
    ------
    ValueError
        One is something else.
    """
    for name, value in counts.items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise ValueError(f"{name} is {value!r}; it is a whole number of at least 1.")


def check_order(
    *, epochs: Any, initial_epoch: Any, shuffle: Any, seed: Any, batch_size: int, workers: int, validation_freq: Any
) -> None:
    """What fixes how often and in which order rows are gone through.

    Raises
    ------
    ValueError
        One of them can't be.
    """
    check_counts(epochs=epochs, batch_size=batch_size, workers=workers)
    if isinstance(initial_epoch, bool) or not isinstance(initial_epoch, int) or not 0 <= initial_epoch <= epochs:
        raise ValueError(f"initial_epoch is {initial_epoch!r}; it is a whole number from 0 to epochs={epochs}.")
    if not isinstance(shuffle, bool) and shuffle != "partition":
        raise ValueError(f"shuffle is {shuffle!r}; it is True, False or 'partition'.")
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise ValueError(f"seed is {seed!r}; it is a whole number.")
    if batch_size < workers:
        raise ValueError(
            f"batch_size={batch_size} is the global batch, and {workers} workers share it: some would have no row. "
            "Pass a larger batch_size, or fewer workers."
        )
    every = validation_freq if isinstance(validation_freq, Sequence) else [validation_freq]
    if isinstance(validation_freq, str) or any(isinstance(n, bool) or not isinstance(n, int) or n < 1 for n in every):
        raise ValueError(
            f"validation_freq is {validation_freq!r}; it is a whole number of epochs, or a list of epochs."
        )


def check_servers(model: Any, ps: Any, scorer: Any, *, validates: bool) -> None:
    """What can be trained through parameter servers, and scored.

    Raises
    ------
    ValueError
        It can't be.
    """
    for name, value in (("ps", ps), ("scorer", scorer)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise ValueError(f"{name} is {value!r}; it is a whole number from 0.")
    if scorer and not (ps and validates and scorer == 1):
        raise ValueError(
            f"scorer={scorer!r}: one scorer validates what parameter servers hold. Pass scorer=1 with ps=1 or more and "
            "validation_data, or leave it out: without parameter servers all workers validate together."
        )
    if not ps:
        return
    inner = getattr(model.optimizer, "inner_optimizer", None)
    if ps > 1 and inner is not None:
        raise ValueError(
            f"A scaled loss needs all gradients in one place, to see whether they are finite, and ps={ps} servers "
            "share them. Use ps=1, or compile with auto_scale_loss=False."
        )
    if ps > 1 and model.optimizer.global_clipnorm is not None:
        raise ValueError(
            f"global_clipnorm needs all gradients in one place, and ps={ps} servers share them. Use ps=1, or clipnorm."
        )
    if not model.built:
        raise ValueError(f"Model {model.name!r} has no weights yet. Build it first, or give it an Input, to use ps.")


def check_callbacks(callbacks: Any) -> list[Any]:
    """The callbacks as a flat list.

    Raises
    ------
    TypeError
        One is no callback of Keras.
    """
    import keras

    found = keras.tree.flatten(callbacks) if callbacks is not None else []
    for callback in found:
        if not isinstance(callback, keras.callbacks.Callback) or isinstance(callback, keras.callbacks.CallbackList):
            raise TypeError(f"callbacks has a {type(callback).__name__}; pass instances of keras.callbacks.Callback.")
    return found


def check_weights(class_weight: Any, sample_weight: Any, data: FitData) -> dict[int, float] | None:
    """``class_weight`` as Keras means it.

    Raises
    ------
    TypeError, ValueError
        It is no mapping of classes to numbers, or can't be used with what else is there.
    """
    if class_weight is None:
        return None
    if not isinstance(class_weight, Mapping):
        raise TypeError(f"class_weight is a {type(class_weight).__name__}; pass a dict of class numbers to weights.")
    if sample_weight is not None or data.layout.sample_weight is not None:
        raise ValueError("class_weight and sample_weight can't both be given. Multiply them into one sample_weight.")
    if len(leaves(data.layout.y)) != 1:
        raise ValueError("class_weight is for models with a single output. Pass sample_weight for each output.")
    found = {}
    for number, weight in class_weight.items():
        if not isinstance(number, int) or number < 0 or not math.isfinite(weight):
            raise ValueError(f"class_weight has {number!r}: {weight!r}; it is a dict of class numbers to weights.")
        found[int(number)] = float(weight)
    return found or None


def check_rows(model: Any, data: FitData, validation: FitData | None) -> None:
    """What a row of the data shows before anything is computed; see :func:`check_fits` and :func:`check_labels`."""
    for what, each in (("The data", data), ("The validation data", validation)):
        if each is not None:
            check_fits(model, each, what)
            check_labels(model, each)


def check_fits(model: Any, data: FitData, what: str) -> None:
    """See that a row of the data goes through the model and its loss; builds a model that has no weights yet.

    One row of zeros is computed, here. Nothing is checked where the shape of a row is known only after computing.

    Raises
    ------
    ValueError
        It does not.
    """
    import keras

    if data.rows is None:
        return
    rows = data.rows

    def row(place: int) -> Any:
        shape, dtype = rows[place]
        return keras.ops.zeros((1, *shape), keras.config.floatx() if dtype.kind == "f" else dtype.name)

    x, y = filled(data.layout.x, row), filled(data.layout.y, row)
    told = " and ".join(f"rows of {dtype} {shape or 'numbers'}" for shape, dtype in rows)
    try:
        y_pred = model(x, training=False)
        if y is not None and model._compile_loss is not None:
            _check_outputs(y, y_pred)
            model.compute_loss(x=x, y=y, y_pred=y_pred)
    except Exception as error:
        raise ValueError(
            f"{what} does not fit model {model.name!r}: it has {told}. {type(error).__name__}: {error}"
        ) from error


def _check_outputs(y: Any, y_pred: Any) -> None:
    """Refuse what Keras would broadcast: targets of another shape than predictions, where the loss compares them."""
    import keras

    targets, outputs = keras.tree.flatten(y), keras.tree.flatten(y_pred)
    if len(targets) != len(outputs):
        return
    for target, output in zip(targets, outputs, strict=True):
        wide, narrow = tuple(output.shape[1:]), tuple(target.shape[1:])
        if len(narrow) == len(wide) and narrow != wide and 1 not in (narrow[-1], wide[-1]):
            raise ValueError(f"A row of its targets has the shape {narrow}, and a row that the model predicts {wide}.")


def check_labels(model: Any, data: FitData) -> None:
    """Refuse class numbers that a sparse loss has no output for, in arrays that are here; others are seen by workers.

    Raises
    ------
    ValueError
        There are some.
    """
    import numpy as np

    value = data.value
    place = data.layout.y
    if not isinstance(place, int) or not isinstance(value, tuple) or not isinstance(value[place], np.ndarray):
        return
    if (num_classes := num_classes_of(model)) is None or not len(value[place]):
        return
    low, high = value[place].min(), value[place].max()
    if low < 0 or high >= num_classes:
        raise ValueError(labels_text(low, high, num_classes))


def num_classes_of(model: Any) -> int | None:
    """How many classes a model tells apart whose only loss takes class numbers; None for others."""
    import keras

    loss = getattr(model, "loss", None)
    name = loss if isinstance(loss, str) else getattr(loss, "name", getattr(loss, "__name__", ""))
    if name != "sparse_categorical_crossentropy" or getattr(loss, "ignore_class", None) is not None:
        return None
    outputs = keras.tree.flatten(getattr(model, "outputs", None) or [])
    return int(outputs[0].shape[-1]) if len(outputs) == 1 and outputs[0].shape[-1] else None


def labels_text(low: Any, high: Any, num_classes: int) -> str:
    """What is wrong with class numbers."""
    return (
        f"The labels go from {low} to {high}, and the model tells {num_classes} classes apart, 0 to {num_classes - 1}. "
        "Number the classes from 0, or give the last layer as many units as there are classes."
    )
