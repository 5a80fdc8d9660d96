"""Scores of Dask collections from sums over their partitions: nothing is gathered but these."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import dask
import numpy as np

from dask_train.collections.blocks import check_unmasked
from dask_train.collections.missing import check_none_missing
from dask_train.input_errors import warn_at_the_call
from dask_train.linear_model.blocks import OfBlock
from dask_train.linear_model.checks import check_labels
from dask_train.linear_model.columns import computed, over_rows
from dask_train.linear_model.moments import check_total
from dask_train.linear_model.rows import check_finite

# Of targets and predictions, ``(n,)`` or ``(n, targets)``: what each is off, of that shape.
Loss = Callable[[np.ndarray, np.ndarray], np.ndarray]


def accuracy(predict: OfBlock, classes: np.ndarray, columns: Sequence[Any]) -> float:
    """Return the part of the rows whose label is predicted, each with its weight.

    Parameters
    ----------
    predict
        Labels of a block.
    classes
        Those that there are.
    columns
        Features, labels and perhaps weights, as :func:`~dask_train.linear_model.columns.lazy_columns` gives them.

    Returns
    -------
    float
        From 0 to 1.

    Raises
    ------
    ValueError
        A label or a weight is NaN, labels are several a row or text where classes are not, or no row counts.
    """

    def right(part: list[Any]) -> np.ndarray:
        x, y, *weight = part
        if not len(y):
            return np.zeros(2)
        check_labels(classes, y)
        predicted = predict(x)
        y, counted = _checked(y, predicted, *weight)
        return np.array([counted @ np.asarray(predicted == y), counted.sum()])

    counted, total = sum(computed(over_rows(right, columns)), np.zeros(2))
    return float(counted) / check_total(float(total))


def explained(predict: OfBlock, loss: Loss, columns: Sequence[Any]) -> float:
    """Return the part of the loss of a constant prediction, the mean, that a model saves: R² or D².

    In two passes, the second over the targets only, which stay in memory, so that no digits are lost where their mean
    is far from 0. Of several targets it is the mean.

    Parameters
    ----------
    predict
        Predictions of a block.
    loss
        Squared errors, or deviances.
    columns
        Features, targets and perhaps weights, as :func:`~dask_train.linear_model.columns.lazy_columns` gives them.

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

    def first(part: list[Any]) -> Any:
        x, y, *weight = part
        if not len(y):
            return None
        predicted = predict(x)
        y, counted = _checked(y, predicted, *weight)
        y = y.astype(np.float64)
        sums = [counted @ y, counted @ loss(y, predicted), counted @ np.ones_like(y), np.full(y.shape[1:], len(y))]
        return np.stack(sums), y, counted

    def second(mean: np.ndarray, kept: Any) -> Any:
        if kept is None:
            return None
        _, y, counted = kept
        return counted @ loss(y, np.broadcast_to(mean, y.shape))

    kept = over_rows(first, columns, keep=True)
    part_sums = [each for each in computed([dask.delayed(_first_of)(each) for each in kept]) if each is not None]
    targets, left, total, rows = np.sum(part_sums, axis=0) if part_sums else np.zeros((4, 1))
    if np.min(rows) < 2:
        warn_at_the_call("The score is not well-defined with less than two samples.")
        return float("nan")
    check_total(float(np.min(total)))
    of_mean = dask.delayed(second, pure=False)
    losses = computed([of_mean(targets / total, each) for each in kept])
    whole = np.sum([each for each in losses if each is not None], axis=0)
    constant = whole == 0
    share = 1 - left / np.where(constant, 1.0, whole)
    return float(np.mean(np.where(constant, np.where(left == 0, 1.0, 0.0), share)))


def _first_of(kept: Any) -> Any:
    return None if kept is None else kept[0]


def _checked(y: Any, predicted: np.ndarray, weight: Any = None) -> tuple[np.ndarray, np.ndarray]:
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
