"""Scores of estimators, as numbers that add up over partitions.

Means and squared deviations are joined as T. F. Chan, G. H. Golub and R. J. LeVeque do in "Updating formulae and a
pairwise algorithm for computing sample variances" (1979), since sums of squares lose what large means leave.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from dask_train.input_errors import warn_at_the_call

ACCURACY, R2 = "accuracy", "r2"


@dataclass(frozen=True, kw_only=True)
class Hits:
    """Weights of rows, and of those that were predicted right."""

    weight: float
    right: float

    def plus(self, other: Hits) -> Hits:
        """Add up both."""
        return Hits(weight=self.weight + other.weight, right=self.right + other.right)


@dataclass(frozen=True, kw_only=True)
class Deviations:
    """Squares of what targets differ from their mean, and from predictions: ``(num_targets,)`` each."""

    rows: int
    weight: float
    mean: np.ndarray
    squares: np.ndarray
    errors: np.ndarray

    def plus(self, other: Deviations) -> Deviations:
        """Add up both."""
        weight = self.weight + other.weight
        share = other.weight / weight if weight else 0.0
        apart = other.mean - self.mean
        return Deviations(
            rows=self.rows + other.rows,
            weight=weight,
            mean=self.mean + apart * share,
            squares=self.squares + other.squares + apart**2 * (self.weight * share),
            errors=self.errors + other.errors,
        )


@dataclass(frozen=True, kw_only=True)
class Predictions:
    """Rows as metrics take them: targets and what was predicted, ``(n,)`` or ``(n, k)`` each, and perhaps weights."""

    truth: np.ndarray
    predicted: np.ndarray
    weights: np.ndarray | None


def joined_predictions(parts: list[Predictions | None]) -> Predictions | None:
    """Put the rows of all parts together, in order; None, which is no rows, counts nothing."""
    some = [one for one in parts if one is not None]
    if len(some) < 2:
        return some[0] if some else None
    weights = [one.weights for one in some if one.weights is not None]
    return Predictions(
        truth=np.concatenate([one.truth for one in some]),
        predicted=np.concatenate([one.predicted for one in some]),
        weights=np.concatenate(weights) if weights else None,
    )


def added(parts: list[Any]) -> Any:
    """Return all parts together; None, which is no rows, counts nothing."""
    some: list[Any] = [one for one in parts if one is not None]
    return reduce(lambda total, one: total.plus(one), some) if some else None


def scored(what: str, truth: np.ndarray, predicted: np.ndarray, weights: np.ndarray | None) -> Any:
    """Return what predictions of a block of rows add to a score; None if there is no row.

    Raises
    ------
    ValueError
        Targets and predictions can't be compared, row by row; or a weight is below 0.
    """
    weight = np.ones(len(truth)) if weights is None else np.asarray(weights, float)
    if (weight < 0).any():
        raise ValueError("sample_weight has values below 0. Pass 0 for rows that are not to count.")
    total = float(weight.sum())
    if not len(truth):
        return None
    truth, predicted = (array.reshape(len(array), -1) for array in (truth, predicted))
    if truth.shape != predicted.shape:
        raise ValueError(
            f"A row of the targets has {truth.shape[1]} values, and a row of what is predicted {predicted.shape[1]}."
        )
    if what == ACCURACY:
        kinds = {"text" if _is_text(array) else array.dtype.kind in "biufc" for array in (truth, predicted)}
        if kinds == {"text", True}:
            raise ValueError(
                f"The targets are {truth.dtype}, such as {truth.ravel().tolist()[0]!r}, and the classifier's classes "
                f"{predicted.dtype}, such as {predicted.ravel().tolist()[0]!r}: text is never equal to a number. Pass "
                "labels as fit had them."
            )
        right = np.asarray(truth == predicted).all(axis=1)
        return Hits(weight=total, right=float(weight[right].sum()))
    y, y_predicted = (np.asarray(array, float) for array in (truth, predicted))
    if not np.isfinite(y_predicted).all():
        raise ValueError("The model predicts NaN or infinite numbers, so there is no score. Look at what it is given.")
    mean = weight @ y / (total or 1.0)
    return Deviations(
        rows=len(y), weight=total, mean=mean, squares=weight @ (y - mean) ** 2, errors=weight @ (y - y_predicted) ** 2
    )


def _is_text(array: np.ndarray) -> bool:
    return array.dtype.kind in "UST" or (array.dtype == object and isinstance(array.flat[0], str | bytes))


def results(what: str, total: Any) -> dict[str, float]:
    """Return the score of all rows, as scikit-learn's ``score`` has it: R² of one row is NaN, with a warning.

    Raises
    ------
    ValueError
        There are none, or none has a weight.
    """
    if total is None:
        raise ValueError("There are no rows to evaluate on.")
    if not total.weight:
        raise ValueError("All weights are 0, so there are no rows to evaluate on.")
    if what == ACCURACY:
        return {what: total.right / total.weight}
    if total.rows < 2:
        warn_at_the_call("R² is not defined of less than two rows, and is NaN.")
        return {what: float("nan")}
    # As sklearn.metrics.r2_score: targets that are all the same give 1 where they are met, else 0.
    each = np.where(total.errors == 0, 1.0, 0.0)
    varies = total.squares > 0
    each[varies] = 1 - total.errors[varies] / total.squares[varies]
    return {what: float(each.mean())}
