"""Which losses and metrics look at each row by itself: those of Keras' own that are known to do so.

Their value of a global batch is a sum over rows, so each worker computes that of its rows. Nothing is known of all
others, which get the rows of all workers: also Keras' own whose ``axis`` runs over the rows, or that compare them.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakSet

import keras

from dask_train.compat.keras.compiled import arguments_of, compile_metrics, function_of
from dask_train.compat.keras.internals import LossFunctionWrapper, MeanMetricWrapper

# Keras' functions of which each row's value is its own. Others compare rows (``circle``), look at all labels to tell
# what they mean (``hinge``), make pairs of rows (``categorical_generalized_cross_entropy``), or are not known.
_BY_ROW = frozenset(
    (
        *("mean_squared_error", "mean_absolute_error", "mean_absolute_percentage_error"),
        *("mean_squared_logarithmic_error", "huber", "log_cosh", "poisson", "kl_divergence", "cosine_similarity"),
        *("binary_crossentropy", "categorical_crossentropy", "sparse_categorical_crossentropy"),
        *("binary_focal_crossentropy", "categorical_focal_crossentropy", "categorical_hinge", "ctc"),
        *("accuracy", "binary_accuracy", "categorical_accuracy", "sparse_categorical_accuracy"),
        *("top_k_categorical_accuracy", "sparse_top_k_categorical_accuracy"),
        *("pearson_correlation", "concordance_correlation"),
    )
)
# These make one number of all that they are given, unless they get an axis.
_BY_ROW_ALONG_AXIS = ("dice", "tversky")
# Names of cross-entropies of which the shapes of targets tell which one is meant.
_BY_TARGETS = ("crossentropy", "ce")


def is_loss_by_row(loss: Any) -> bool:
    """Return whether a loss is a function of Keras' own that looks at each row by itself, however it is reduced.

    A class of a user's own counts as well if it leaves it to Keras what is done with the function.
    """
    cls = type(loss)
    if not isinstance(loss, LossFunctionWrapper) or "call" in vars(loss):
        return False
    if cls.call is not LossFunctionWrapper.call or cls.__call__ is not keras.losses.Loss.__call__:
        return False
    return _is_function_by_row(loss.fn, arguments_of(loss))


def is_metric_by_row(metric: keras.metrics.Metric) -> bool:
    """Return whether a metric is one of Keras' own, which counts rows one by one."""
    if not is_of_keras(type(metric)) or metric in _given_all_rows:
        return False
    if isinstance(metric, MeanMetricWrapper):
        return _is_function_by_row(function_of(metric), arguments_of(metric))
    return True


def has_values_alone(y_true: Any, y_pred: Any) -> bool:
    """Return whether targets and outputs are ``(rows,)``, so that Keras' functions reduce the rows, their last axis."""
    return all(len(getattr(one, "shape", ())) == 1 for one in (y_true, y_pred))


def give_all_rows(metric: keras.metrics.Metric, y_true: Any, y_pred: Any) -> bool:
    """Return whether a compiled metric is to be given all workers' rows, which :func:`variables_of_all` knows then."""
    if isinstance(metric, MeanMetricWrapper) and has_values_alone(y_true, y_pred):
        _given_all_rows.add(metric)
    return not is_metric_by_row(metric)


# Keras' own, for what they are given in this process.
_given_all_rows: WeakSet[keras.metrics.Metric] = WeakSet()


def loss_of_rows_together(model: Any) -> str | None:
    """Return the name of a compiled loss that may compare rows; None if all are known to go by row."""
    for identifier in keras.tree.flatten(model.loss):
        loss = (
            keras.losses.get(identifier)
            if isinstance(identifier, str) and identifier not in _BY_TARGETS
            else identifier
        )
        if loss is None or isinstance(loss, str):
            continue
        wrapped = loss if isinstance(loss, keras.losses.Loss) else LossFunctionWrapper(loss)
        if not is_loss_by_row(wrapped):
            return str(getattr(loss, "__name__", None) or getattr(loss, "name", type(loss).__name__))
    return None


def variables_of_all(model: Any) -> set[int]:
    """Return the ``id`` of each variable of a compiled metric that is given all workers' rows."""
    compiled = compile_metrics(model)
    own = [metric for metric in (compiled.metrics if compiled is not None else ()) if not is_metric_by_row(metric)]
    return {id(variable) for metric in own for variable in metric.variables}


def is_of_keras(value: Any) -> bool:
    """Return whether a class or function is Keras' own."""
    return str(getattr(value, "__module__", "")).partition(".")[0] == "keras"


def _is_function_by_row(function: Any, settings: dict[str, Any]) -> bool:
    if isinstance(function, keras.losses.Loss):
        return False  # reduces the values of rows before they are weighted
    if not is_of_keras(function):
        return False
    name, axis = getattr(function, "__name__", ""), settings.get("axis")
    if axis is None:
        return name in _BY_ROW
    axes = axis if isinstance(axis, list | tuple) else [axis]
    return name in (*_BY_ROW, *_BY_ROW_ALONG_AXIS) and all(one == -1 or one > 0 for one in axes)
