"""Numbers that add up over partitions: what metrics have counted, and the scores of estimators.

Means and squared deviations are joined as T. F. Chan, G. H. Golub and R. J. LeVeque do in "Updating formulae and a
pairwise algorithm for computing sample variances" (1979), since sums of squares lose what large means leave.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

ACCURACY, R2 = "accuracy", "r2"


@dataclass(frozen=True, kw_only=True)
class Counted:
    """What a model's metrics have counted, and one row of the data, by which they can be made elsewhere."""

    counts: list[np.ndarray]
    sample: list[np.ndarray]

    def plus(self, other: Counted) -> Counted:
        """Both together."""
        pairs = zip(self.counts, other.counts, strict=True)
        return Counted(counts=[mine + theirs for mine, theirs in pairs], sample=self.sample)


@dataclass(frozen=True, kw_only=True)
class Hits:
    """Weights of rows, and of those that were predicted right."""

    weight: float
    right: float

    def plus(self, other: Hits) -> Hits:
        """Both together."""
        return Hits(weight=self.weight + other.weight, right=self.right + other.right)


@dataclass(frozen=True, kw_only=True)
class Deviations:
    """Squares of what targets differ from their mean, and from predictions: ``(num_targets,)`` each."""

    weight: float
    mean: np.ndarray
    squares: np.ndarray
    errors: np.ndarray

    def plus(self, other: Deviations) -> Deviations:
        """Both together."""
        weight = self.weight + other.weight
        apart = other.mean - self.mean
        return Deviations(
            weight=weight,
            mean=self.mean + apart * (other.weight / weight),
            squares=self.squares + other.squares + apart**2 * (self.weight * other.weight / weight),
            errors=self.errors + other.errors,
        )


def added(parts: list[Any]) -> Any:
    """All parts together; None, which is no rows, counts nothing."""
    some: list[Any] = [one for one in parts if one is not None]
    return reduce(lambda total, one: total.plus(one), some) if some else None


def scored(what: str, truth: np.ndarray, found: np.ndarray, weights: np.ndarray | None) -> Any:
    """What predictions of a block of rows add to a score; None where there is no row, or no weight."""
    weight = np.ones(len(truth)) if weights is None else np.asarray(weights, float)
    total = float(weight.sum())
    if not len(truth) or not total:
        return None
    if what == ACCURACY:
        right = np.asarray(truth == found).reshape(len(truth), -1).all(axis=1)
        return Hits(weight=total, right=float(weight[right].sum()))
    y, y_found = (np.asarray(array, float).reshape(len(truth), -1) for array in (truth, found))
    mean = weight @ y / total
    return Deviations(weight=total, mean=mean, squares=weight @ (y - mean) ** 2, errors=weight @ (y - y_found) ** 2)


def results(what: str, total: Any) -> dict[str, float]:
    """The score of all rows, as scikit-learn's ``score`` has it.

    Raises
    ------
    ValueError
        There are none.
    """
    if total is None:
        raise ValueError("There are no rows to evaluate on.")
    if what == ACCURACY:
        return {what: total.right / total.weight}
    # As sklearn.metrics.r2_score: targets that are all the same give 1 where they are met, else 0.
    each = np.where(total.errors == 0, 1.0, 0.0)
    varies = total.squares > 0
    each[varies] = 1 - total.errors[varies] / total.squares[varies]
    return {what: float(each.mean())}
