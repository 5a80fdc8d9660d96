"""A problem in the coordinates of standardised features, which first-order methods need; the rows stay as they are."""

from __future__ import annotations

from copy import copy
from typing import Self

import numpy as np

from dask_train.linear_model.objective import Objective
from dask_train.linear_model.ranks import Ranks
from dask_train.linear_model.rows import dense
from dask_train.linear_model.sampling import Sample
from dask_train.linear_model.solvers import scales_of

# A feature whose variance is no more, relative to its mean square, is constant: the rest is rounding.
_CONSTANT = 1e-26


class Standardised:
    """An :class:`Objective` of ``coef * scale``, with the intercept at the features' means; the same minimum.

    Of means far from 0 an intercept is almost collinear with the features, and features of other units make a valley
    of the loss; both cost first-order methods thousands of steps. As the intercept is not penalised, and penalties are
    scaled along, nothing else changes.

    Parameters
    ----------
    objective
        The problem.
    means, scale
        Of the features, ``(p,)`` each; means are 0 if there is no intercept.

    Attributes
    ----------
    size, penalty, l1
        As of :class:`Objective`, in the new coordinates.
    """

    def __init__(self, objective: Objective, means: np.ndarray, scale: np.ndarray) -> None:
        self._objective, self._shape = objective, (objective.num_outputs, objective.width)
        self.size, num_features = objective.size, len(scale)
        inverse = np.diag(np.append(1 / scale, np.ones(objective.width - num_features)))
        if objective.width > num_features:
            inverse[-1, :num_features] = -means / scale
        self._inverse = inverse
        squeezed = np.tile(np.append(scale, np.ones(objective.width - num_features)), objective.num_outputs)
        self.penalty, self.l1 = objective.penalty / squeezed**2, objective.l1 / squeezed

    def of(self, sample: Sample) -> Self:
        """Do as :meth:`Objective.of`, in the same coordinates."""
        sampled = copy(self)
        sampled._objective = self._objective.of(sample)
        return sampled

    def raw(self, coef: np.ndarray) -> np.ndarray:
        """Coefficients of the features as they are."""
        return (coef.reshape(self._shape) @ self._inverse.T).ravel()

    def standard(self, coef: np.ndarray) -> np.ndarray:
        """Coefficients of the standardised features."""
        standard_coef: np.ndarray = np.linalg.solve(self._inverse, coef.reshape(self._shape).T).T.ravel()
        return standard_coef

    def evaluate(self, coef: np.ndarray, order: int) -> list[np.ndarray]:
        """Do as :meth:`Objective.evaluate`."""
        return self._turned(self._objective.evaluate(self.raw(coef), order))

    def own(self, coef: np.ndarray, order: int) -> list[np.ndarray]:
        """Do as :meth:`Objective.own`."""
        return self._turned(self._objective.own(self.raw(coef), order))

    def _turned(self, derivatives: list[np.ndarray]) -> list[np.ndarray]:
        derivatives = list(derivatives)
        if len(derivatives) > 1:
            derivatives[1] = (derivatives[1].reshape(self._shape) @ self._inverse).ravel()
        if len(derivatives) > 2:
            outputs, width = self._shape
            blocks = derivatives[2].reshape(outputs, width, outputs, width)
            derivatives[2] = np.einsum("iakb,ac,bd->ickd", blocks, self._inverse, self._inverse, optimize=True).reshape(
                self.size, self.size
            )
        return derivatives


def standardised(ranks: Ranks, objective: Objective, sample: Sample | None = None) -> Standardised:
    """Return the problem in coordinates of about unit curvature, found in a pass or two; the same on all ranks.

    With a sample the passes are over its rows, unless a feature is constant there: any coordinates near these will do.
    A solver that resumes has those in which it began, whatever the sample is now.
    """
    if sample is None:
        return _scaled(ranks, objective, *_moments(ranks, objective))
    means, squares, variance = _moments(ranks, objective.of(sample))
    if (variance > _CONSTANT * squares).all():
        return _scaled(ranks, objective, means, squares, variance)
    return standardised(ranks, objective)


def _scaled(
    ranks: Ranks, objective: Objective, means: np.ndarray, squares: np.ndarray, variance: np.ndarray
) -> Standardised:
    varies = np.where(variance > _CONSTANT * squares, variance, squares)
    # A penalty that outweighs the rows bends the problem as much as they do.
    scale = scales_of(varies + objective.penalty[: objective.num_features])
    return Standardised(objective, *ranks.steps.coordinates(means, scale))


def _moments(ranks: Ranks, objective: Objective) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Means, 0 if there is no intercept, mean squares and variances of all features."""
    num_features = objective.num_features
    sums = np.zeros((2, num_features))
    for x, _, weight in () if ranks.steps.knows_next else objective.blocks():
        squares = x.multiply(x) if hasattr(x, "multiply") else x * x
        sums += [np.asarray(x.T @ weight).ravel(), np.asarray(squares.T @ weight).ravel()]
    means, squares = ranks.all_reduce(sums) / objective.total
    means = means if objective.width > num_features else np.zeros(num_features)
    return means, squares, _variance(ranks, objective, means, squares)


def _variance(ranks: Ranks, objective: Objective, means: np.ndarray, squares: np.ndarray) -> np.ndarray:
    """Return the variance of each feature, in another pass where means far from 0 leave few digits."""
    variance: np.ndarray = squares - means**2
    if (variance > 1e-8 * squares).all():
        return variance
    own = np.zeros(objective.num_features)
    for x, _, weight in () if ranks.steps.knows_next else objective.blocks():
        own += weight @ (dense(x) - means) ** 2
    again: np.ndarray = ranks.all_reduce(own) / objective.total
    return again
