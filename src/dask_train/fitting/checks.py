"""What ``fit`` refuses of Keras models, of labels and weights, before anything starts.

The order of all checks of a fit is in :mod:`dask_train.fitting.start`.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from dask_train.checkpoint.policy import Checkpoint
from dask_train.collections.schema.category import CategoryColumn
from dask_train.compat.keras.compiled import arguments_of, compile_loss, compute_loss
from dask_train.compat.keras.layers import flatten_layers
from dask_train.errors import in_words
from dask_train.fitting.backends import BACKENDS, backend_of
from dask_train.fitting.embedding_checks import check_embeddings
from dask_train.fitting.kinds import KINDS, named
from dask_train.inputs.data import InputData

# To resume from a checkpoint, except for its learning rate.
NEW_LEARNING_RATE = "new_learning_rate"


def check_model(model: Any) -> None:
    """Check that it is a compiled Keras model on a backend that can be trained with.

    Raises
    ------
    TypeError, ValueError
        It is not one.
    VersionMismatchError
        Keras has moved what training needs of it.
    """
    keras: Any = sys.modules.get("keras")  # without it there is no model of it
    if keras is None or not isinstance(model, keras.Model):
        estimator = (
            " Other estimators: those of dask_train.linear_model have a fit of their own, and "
            "dask_train.sklearn.Incremental trains what has partial_fit."
        )
        raise TypeError(
            f"model is a {type(model).__name__}; pass a compiled keras.Model{named(KINDS)}."
            f"{estimator if hasattr(model, 'get_params') else ''}"
        )
    from dask_train.compat.keras.check import check_private_parts

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
    steps = model.steps_per_execution
    if isinstance(steps, bool) or not hasattr(steps, "__index__") or steps < 1:
        raise ValueError(
            f"Model {model.name!r} is compiled with steps_per_execution={steps!r}; it is a whole number of at least 1, "
            "as in Keras 3."
        )
    if (reason := backend_of(backend).refusal(model)) is not None:
        raise ValueError(f"Model {model.name!r} {reason}")
    if model.optimizer is None:
        raise ValueError(f"Model {model.name!r} is compiled without an optimizer. Pass one to model.compile.")
    check_private_parts(model)


def check_together(model: Any, workers: int, *, ps: int = 0) -> None:
    """Check that several workers can train a model on its backend; with parameter servers each takes steps of its own.

    Raises
    ------
    ValueError
        They can't.
    """
    import keras

    if (reason := backend_of(keras.backend.backend()).refusal(model, workers)) is not None:
        raise ValueError(f"Model {model.name!r} {reason}")
    if workers > 1:
        _check_layers(model, ps)


def _check_layers(model: Any, ps: int) -> None:
    """Refuse layers that need all rows of a batch, of which each worker has a share.

    Raises
    ------
    ValueError
        There is one.
    """
    from dask_train.keras_models.state import stateful_layer

    if (layer := stateful_layer(model)) is not None:
        raise ValueError(
            f"Layer {layer.name!r} of model {model.name!r} is stateful: it carries a state for each row of a batch "
            "over to the next batch, and each worker has a share of the rows only. Make the model with stateful=False, "
            "or pass workers=1."
        )
    for layer in flatten_layers(model) if ps else ():
        if getattr(layer, "synchronized", False) is True:
            raise ValueError(
                f"Layer {layer.name!r} of model {model.name!r} has synchronized=True, which asks for statistics of the "
                "whole batch, and with ps= each worker takes steps of its own. Leave ps out; or leave synchronized "
                "out, for moving averages that are averaged over the workers."
            )


def check_best_of_fit(checkpoint: Checkpoint | None, *, validates: bool, ps: int) -> None:
    """Check that the score by which the best checkpoint is known is one of the model that is kept, and can come.

    Raises
    ------
    ValueError
        It is not, or can't.
    """
    if checkpoint is None or checkpoint.best is None:
        return
    of_validation = checkpoint.best.startswith("val_")
    if of_validation and not validates:
        raise ValueError(
            f"The best checkpoint is to be known by {checkpoint.best!r}, which nothing computes: pass validation_data "
            "or validation_split."
        )
    if ps:
        raise ValueError(
            f"The best checkpoint is to be known by {checkpoint.best!r}, and with ps={ps} the weights change while "
            "they are scored, by a scorer as well: none that was kept would have that score. Leave best= out, or pass "
            "ps=0."
        )


def check_share(batch_size: int, workers: int) -> None:
    """Check that each worker has a row of a batch.

    Raises
    ------
    ValueError
        There are more workers than rows.
    """
    if batch_size < workers:
        raise ValueError(
            f"batch_size={batch_size} is the global batch, and {workers} workers share it: some would have no row. "
            "Pass a larger batch_size, or fewer workers."
        )


def check_callbacks(callbacks: Any) -> list[Any]:
    """Return the callbacks as a flat list.

    Raises
    ------
    TypeError, ValueError
        One is no callback of Keras, or one that sets where training begins.
    """
    import keras

    flat_callbacks = keras.tree.flatten(callbacks) if callbacks is not None else []
    for callback in flat_callbacks:
        if not isinstance(callback, keras.callbacks.Callback) or isinstance(callback, keras.callbacks.CallbackList):
            raise TypeError(f"callbacks has a {type(callback).__name__}; pass instances of keras.callbacks.Callback.")
        if isinstance(callback, keras.callbacks.BackupAndRestore):
            raise ValueError(
                f"Callback {type(callback).__name__} would set back the first worker alone, and the others would wait "
                "for it. Pass checkpoint='a folder or URL' instead, and resume=True to continue: that keeps what all "
                "workers hold, and repeats no row."
            )
    return flat_callbacks


def _numbers_of_classes(data: InputData) -> str:
    """Return which class of a label that holds categories has which number, as the end of an error; else nothing."""
    targets = () if data.schema is None else data.schema.targets
    for column in (each for each in targets if isinstance(each, CategoryColumn)):
        numbers = ", ".join(f"{value!r} is {number}" for number, value in enumerate(column.categories[:10].tolist()))
        return f" Of {column.name!r} {numbers}{', ...' if len(column.categories) > 10 else ''}."
    return ""


def check_weights(class_weight: Any, sample_weight: Any, data: InputData) -> dict[int, float] | None:
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
    if sample_weight is not None or data.columns.weights is not None:
        raise ValueError("class_weight and sample_weight can't both be given. Multiply them into one sample_weight.")
    if isinstance(data.columns.labels, dict | list | tuple):
        raise ValueError("class_weight is for models with a single output. Pass sample_weight for each output.")
    if data.columns.labels is None:
        raise ValueError("class_weight is by the class of each row's target, and there are no targets.")
    if data.columns.are_known and len(shape := data.columns[data.columns.labels].row_shape) > 1:
        raise ValueError(
            f"class_weight is by the class of each row, and rows have targets of shape {shape}. Pass sample_weight, of "
            "the shape that the loss has."
        )
    weight_by_class = {}
    for number, weight in class_weight.items():
        if not _is_number(number) or number != round(number) or not _is_number(weight):
            raise ValueError(
                f"class_weight has {number!r}: {weight!r}; it is a dict of whole class numbers to finite weights."
                f"{_numbers_of_classes(data)}"
            )
        weight_by_class[int(number)] = float(weight)
    return weight_by_class


def _is_number(value: Any) -> bool:
    """Return a finite number of Python's or NumPy's."""
    return isinstance(value, bool | int | float | np.integer | np.floating | np.bool_) and math.isfinite(value)


def check_rows(model: Any, data: InputData, validation: InputData | None, *, in_process: bool = False) -> None:
    """Check what a row of the data shows before anything is computed."""
    check_embeddings(model, data)
    check_fits(model, data, "The data", "train_step", in_process=in_process)
    check_labels(model, data)
    if validation is not None:
        check_fits(model, validation, "The validation data", "test_step")
        check_labels(model, validation)


def check_fits(model: Any, data: InputData, what: str, step: str, *, in_process: bool = False) -> None:
    """Check that rows of the data go through the model and its loss; builds a model that has no weights yet.

    Shapes and dtypes are gone through, as in the graph that each worker makes of a step, and nothing is computed: what
    only values tell is the workers' to find out. So is what a step of the user's own does with a batch, whatever a
    model does that is run eagerly, and all of data whose rows are known only after computing.

    Parameters
    ----------
    what
        How errors call the data.
    step
        The method that takes its batches: ``"train_step"`` or ``"test_step"``.
    in_process
        Whether this very model is trained: what the user's own layers and losses count is left as the look that
        Keras' ``fit`` takes leaves it, and else as it was.

    Raises
    ------
    ValueError
        They do not.
    """
    import keras

    from dask_train.fitting.roles.models import build, called, is_looked_at, is_own, packed
    from dask_train.fitting.roles.rehearsal import Counts
    from dask_train.keras_models.state import is_built
    from dask_train.keras_models.text_inputs import check_texts

    if not data.columns.are_known:
        return
    backend = backend_of(keras.backend.backend())
    compares = not is_own(model, "compute_loss") and compile_loss(model) is not None

    def seen(batch: list[Any]) -> None:
        x, y, sample_weight = packed(data.columns, backend, batch)
        y_pred = called(model, x)
        if compares and _is_of_keras(model.loss):
            _check_outputs(y, y_pred)
        compute_loss(model, x=x, y=y, y_pred=y_pred, sample_weight=sample_weight, training=False)

    texts = [column.is_text or np.dtype(column.dtype).kind in "SU" for column in data.columns]
    description = " and ".join(
        f"rows of text {column.row_shape or ''}".strip()
        if is_text
        else f"rows of {np.dtype(column.dtype)} {column.row_shape or 'numbers'}"
        for column, is_text in zip(data.columns, texts, strict=True)
    )
    if any(texts) and not backend.takes_text:
        raise ValueError(
            f"{what} has {description}, and Keras on {keras.backend.backend()!r} has no tensors of text. Make numbers "
            "of it first, or train with KERAS_BACKEND=tensorflow."
        )
    counts, counted = Counts(model), in_process and is_looked_at(model, backend)
    try:
        if not is_own(model, step):
            x, y, sample_weight = data.columns.pack(texts)
            check_texts(model, x, y if compares and _is_of_keras(model.loss) else None, sample_weight)
        if not is_own(model, step) and not model.run_eagerly:
            if compares and data.columns.labels is None:
                raise ValueError(_no_targets(len(data.columns), step))
            backend.traced(seen, data.columns)
            if counted:
                counts.note()
                counted = False
        if backend.symbolic_build or not is_built(model):
            build(model, data.columns)
        if counted:
            counts.note()
    except Exception as error:
        raise ValueError(
            f"{what} does not fit model {model.name!r}: it has {description}. {in_words(error)}"
        ) from error
    finally:
        counts.set_back()


def _no_targets(num_inputs: int, step: str) -> str:
    several = f"; {num_inputs} arrays are {num_inputs} inputs there" if num_inputs > 1 else ""
    change = "Pass y, or" if step == "train_step" else "Pass validation_data=(X, y), or a data set with targets, or"
    return f"There are no targets, which its loss compares with{several}. {change} label= with a frame."


def _is_of_keras(losses: Any) -> bool:
    """Return whether all losses are Keras' own, by name or not; one of the user's may compare what it likes."""
    import keras

    functions = [getattr(loss, "fn", loss) for loss in keras.tree.flatten(losses)]
    modules = [str(getattr(loss, "__module__", "")) for loss in functions if not isinstance(loss, str | None)]
    return all(module.partition(".")[0] == "keras" for module in modules)


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


def check_labels(model: Any, data: InputData) -> None:
    """Refuse class numbers that a sparse loss has no output for, in arrays that are here; others are seen by workers.

    Raises
    ------
    ValueError
        There are some.
    """
    value = data.value
    place = data.columns.labels
    if not isinstance(place, int) or not isinstance(value, tuple) or not isinstance(value[place], np.ndarray):
        return
    if (num_classes := num_classes_of(model)) is None or not len(value[place]):
        return
    low, high = value[place].min(), value[place].max()
    if low < 0 or high >= num_classes:
        raise ValueError(labels_text(low, high, num_classes))


def num_classes_of(model: Any) -> int | None:
    """Return how many classes a model tells apart whose only loss takes class numbers; None for others.

    What a step or a loss of the user's own makes of its targets is not known: these need not be class numbers.
    """
    import keras

    from dask_train.fitting.roles.models import is_own

    if is_own(model, "train_step") or is_own(model, "compute_loss"):
        return None
    loss = getattr(model, "loss", None)
    name = loss if isinstance(loss, str) else getattr(loss, "name", getattr(loss, "__name__", ""))
    if name != "sparse_categorical_crossentropy" or getattr(loss, "ignore_class", None) is not None:
        return None
    outputs = keras.tree.flatten(getattr(model, "outputs", None) or [])
    shape = outputs[0].shape if len(outputs) == 1 else ()
    axis = arguments_of(loss, {}).get("axis", -1)
    return int(shape[axis]) if -len(shape) <= axis < len(shape) and shape[axis] else None


def labels_text(low: Any, high: Any, num_classes: int) -> str:
    """Return what is wrong with class numbers."""
    return (
        f"The labels go from {low} to {high}, and the model tells {num_classes} classes apart, 0 to {num_classes - 1}. "
        "Number the classes from 0, or give the last layer as many units as there are classes."
    )
