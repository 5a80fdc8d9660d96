"""Scores of Dask collections from sums over their blocks: nothing is gathered but these."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dask.array as da
import numpy as np

from dask_train.collections.blocks import check_unmasked
from dask_train.collections.missing import check_none_missing
from dask_train.input_errors import warn_at_the_call
from dask_train.linear_model.blocks import OfBlock, over_blocks
from dask_train.linear_model.moments import check_total
from dask_train.linear_model.rows import check_finite

# Of targets and predictions, ``(n,)`` or ``(n, targets)``: what each is off, of that shape.
Loss = Callable[[np.ndarray, np.ndarray], np.ndarray]


def accuracy(predict: OfBlock, X: da.Array, y: da.Array, *weight: da.Array) -> float:
    """The part of the rows whose label is predicted, each with its weight.

    Parameters
    ----------
    predict
        Labels of a block.
    X, y, weight
        Dask arrays with the same chunks of rows.

    Returns
    -------
    float
        From 0 to 1.

    Raises
    ------
    ValueError
        A label or a weight is NaN, labels are several a row, or no row counts.
    """

    def right(x: Any, y: Any, weight: Any = None) -> np.ndarray:
        found = predict(x)
        y, weight = _checked(y, found, weight)
        return np.array([weight @ (found == y), weight.sum()])

    counted, total = sum(over_blocks(right, X, y, *weight), np.zeros(2))
    return float(counted) / check_total(float(total))


def explained(predict: OfBlock, loss: Loss, X: da.Array, y: da.Array, *weight: da.Array) -> float:
    """The part of the loss of a constant prediction, the mean, that a model saves: R² or D².

    In two passes, the second over the targets only, so that no digits are lost where their mean is far from 0. Of
    several targets it is the mean.

    Parameters
    ----------
    predict
        Predictions of a block.
    loss
        Squared errors, or deviances.
    X, y, weight
        Dask arrays with the same chunks of rows.

    Returns
    -------
    float
        1 at best. As in scikit-learn, NaN of less than two rows, with a warning; and where the targets are constant 1
        if they are predicted, else 0.

    Raises
    ------
    ValueError
        A target or a weight is NaN, targets are of another shape than predictions, or no row counts.
    """
    if len(X) < 2:
        warn_at_the_call("The score is not well-defined with less than two samples.")
        return float("nan")

    def first(x: Any, y: Any, weight: Any = None) -> np.ndarray:
        predicted = predict(x)
        y, weight = _checked(y, predicted, weight)
        y = y.astype(np.float64)
        return np.stack([weight @ y, weight @ loss(y, predicted), weight @ np.ones_like(y)])

    targets, left, total = np.sum(over_blocks(first, X, y, *weight), axis=0)
    check_total(float(np.min(total)))
    mean = targets / total

    def second(y: Any, weight: Any = None) -> np.ndarray:
        y = np.asarray(y, np.float64)
        return _summed(loss(y, np.broadcast_to(mean, y.shape)), weight)

    whole = np.sum(over_blocks(second, y, *weight), axis=0)
    constant = whole == 0
    share = 1 - left / np.where(constant, 1.0, whole)
    return float(np.mean(np.where(constant, np.where(left == 0, 1.0, 0.0), share)))


def _summed(values: np.ndarray, weight: Any) -> np.ndarray:
    return np.asarray(values.sum(axis=0) if weight is None else np.asarray(weight) @ values)


def _checked(y: Any, predicted: np.ndarray, weight: Any) -> tuple[np.ndarray, np.ndarray]:
    """Targets in the shape of the predictions, and float64 weights; both finite."""
    for name, values in (("y", y), ("sample_weight", weight)):
        check_unmasked(f"A block of {name}", values)
    y = np.asarray(y)
    if y.size != predicted.size:
        raise ValueError(
            f"A row of y has {y.size // len(y)} values, and the model predicts {predicted.size // len(y)} of each. "
            "Pass as many columns of y."
        )
    if y.dtype.kind == "f":
        check_finite("y", y)
    elif y.dtype.kind == "O":
        check_none_missing("values of y", y)
    weight = np.ones(len(y)) if weight is None else np.asarray(weight, np.float64)
    check_finite("sample_weight", weight)
    return y.reshape(predicted.shape), weight
