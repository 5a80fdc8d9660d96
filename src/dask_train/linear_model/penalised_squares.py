"""Least squares with a penalty of absolute values: the lasso and the elastic net."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from dask_train.linear_model.families import Family
from dask_train.linear_model.fitting import Fitted
from dask_train.linear_model.moments import moments
from dask_train.linear_model.objective import Objective
from dask_train.linear_model.ranks import Ranks
from dask_train.linear_model.rows import rows_of
from dask_train.linear_model.solving import solved


@dataclass(frozen=True, kw_only=True)
class PenalisedSquares:
    """The problem; called with the ranks that solve it, it gives one :class:`Fitted` a target.

    Features and targets are centred, a block of rows at a time, so that means which are far from 0 cost no digits.

    Attributes
    ----------
    l2, l1
        Penalties of half the squared coefficients and of the absolute ones, added to half the mean squared error.
    fit_intercept, num_features
        The model.
    solver, tol, max_iter
        ``tol`` is relative to the targets' standard deviation, as the gradient is in their unit.
    start
        Coefficients to begin with, ``(targets, features)``; of another problem they count for nothing.
    """

    l2: float
    l1: float
    fit_intercept: bool
    num_features: int
    solver: str
    tol: float
    max_iter: int
    start: np.ndarray | None = field(default=None, repr=False)

    def __call__(self, ranks: Ranks) -> list[Fitted]:
        """Return the same on all ranks."""
        parts = [rows_of(*part) for part in ranks.partitions()]
        parts = [(x, y.reshape(len(y), -1), weight) for x, y, weight in parts]
        total, means, num_targets = moments(ranks, parts, self.num_features)
        if not self.fit_intercept:
            means = np.zeros_like(means)
        of_x, of_y = means[: self.num_features], means[self.num_features :]
        squares = sum((weight @ (y - of_y) ** 2 for _, y, weight in parts), np.zeros(num_targets))
        spread = np.sqrt(ranks.all_reduce(squares) / total)
        start = np.zeros((num_targets, self.num_features))
        if self.start is not None and self.start.shape == start.shape:
            start = np.asarray(self.start, np.float64)
        fits = []
        for target in range(num_targets):
            own = [(x, y[:, target] - of_y[target], weight) for x, y, weight in parts]
            objective = Objective(
                ranks,
                own,
                Family(),
                self.num_features,
                fit_intercept=False,
                penalty=self.l2,
                l1=self.l1,
                total=total,
                centre=of_x if self.fit_intercept else None,
            )
            begin = start[target]
            tol = self.tol * float(spread[target] or 1.0)
            coef, steps, converged = solved(ranks, objective, self.solver, begin, tol, self.max_iter)
            row = np.append(coef, of_y[target] - of_x @ coef)
            stopped = ranks.steps.stopped and not converged
            fitted = Fitted(coef=row[None], steps=steps, converged=converged, separable=False, stopped=stopped)
            fits.append(fitted)
        return fits
