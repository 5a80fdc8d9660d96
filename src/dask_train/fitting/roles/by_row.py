"""Which losses and metrics look at each row by itself: Keras' own, unless their ``axis`` runs over the rows.

Their value of a global batch is a sum over rows, so each worker computes that of its rows. Nothing is known of all
others, which get the rows of all workers.
"""

from __future__ import annotations

from typing import Any

import keras

from dask_train.compat.keras.compiled import arguments_of, compile_metrics, function_of
from dask_train.compat.keras.internals import LossFunctionWrapper, MeanMetricWrapper

# Functions that make one number of all that they are given, where they are told no axis.
_OVER_ALL = ("dice", "tversky")
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
    if not is_of_keras(type(metric)):
        return False
    if isinstance(metric, MeanMetricWrapper):
        return _is_function_by_row(function_of(metric), arguments_of(metric))
    return True


def loss_of_rows_together(model: Any) -> str | None:
    """Return the name of a compiled loss that may compare rows; None where all are known to go by row."""
    for given in keras.tree.flatten(model.loss):
        loss = keras.losses.get(given) if isinstance(given, str) and given not in _BY_TARGETS else given
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
    axis = settings.get("axis")
    if axis is None:
        return getattr(function, "__name__", "") not in _OVER_ALL
    return all(one == -1 or one > 0 for one in (axis if isinstance(axis, list | tuple) else [axis]))
