"""A linear model fitted by ranks: one function for the roles of a run and for this process alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dask_train.linear_model.families import Family, Logistic, Multinomial
from dask_train.linear_model.moments import check_total
from dask_train.linear_model.objective import Objective
from dask_train.linear_model.ranks import Ranks
from dask_train.linear_model.rows import blocks_of, rows_of
from dask_train.linear_model.sampling import sample_of
from dask_train.linear_model.solving import solved


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """Outcome of a fit.

    Attributes
    ----------
    coef
        ``(outputs, features, [and one])``.
    steps, converged, separable
        Number of steps of the solver, whether it has converged, and whether there is no minimum: without a penalty, the
        coefficients of classes that a plane divides grow for ever.
    stopped
        Whether it was stopped before.
    """

    coef: np.ndarray
    steps: int
    converged: bool
    separable: bool
    stopped: bool = False


@dataclass(frozen=True, kw_only=True)
class Task:
    """A model to be fitted, and how; called with the ranks that do it.

    Attributes
    ----------
    family, num_features, fit_intercept
        The model.
    alpha, l1_ratio, of_sum
        The penalty, added to the mean of the losses, or to their sum: of the absolute coefficients by the ratio, and
        of half the squared ones by the rest.
    solver, tol, max_iter, start
        As the estimators have them.
    classes, class_weight
        Of classifiers.
    """

    family: Family
    num_features: int
    fit_intercept: bool
    alpha: float
    of_sum: bool
    solver: str
    tol: float
    max_iter: int
    l1_ratio: float = 0.0
    start: np.ndarray | None = field(default=None, repr=False)
    classes: np.ndarray | None = None
    class_weight: str | Mapping[Any, float] | None = None

    def __call__(self, ranks: Ranks) -> Fitted:
        """Fit it; the same on all ranks."""
        parts = [self._prepared(*part) for part in ranks.partitions()]
        if self.classes is not None and self.class_weight is not None:
            parts = self._weighted(ranks, parts)
        sums = np.zeros(3)  # also where there are no partitions
        for _, y, weight in parts:
            sums += [weight.sum(), weight @ y, len(y)]
        total, targets, num_rows = ranks.all_reduce(sums)
        total = check_total(float(total))
        alpha = self.alpha / total if self.of_sum else self.alpha
        objective = Objective(
            ranks,
            parts,
            self.family,
            self.num_features,
            fit_intercept=self.fit_intercept,
            penalty=alpha * (1 - self.l1_ratio),
            l1=alpha * self.l1_ratio,
            total=total,
        )
        start, sample = self._start(objective, float(targets) / total), None
        if self.start is None and type(self.family) is not Family:  # of squares one step is the whole way
            sample = sample_of(ranks, parts, int(num_rows), objective.size)
        flat_coef, steps, converged = solved(ranks, objective, self.solver, start, self.tol, self.max_iter, sample)
        separable = not self.alpha and self._separates(ranks, parts, objective, flat_coef)
        coef = self._centred(flat_coef.reshape(objective.num_outputs, -1))
        stopped = ranks.steps.stopped and not converged
        return Fitted(coef=coef, steps=steps, converged=converged, separable=separable, stopped=stopped)

    def _centred(self, coef: np.ndarray) -> np.ndarray:
        """Choose among coefficients of several classes that mean the same those that come to 0 over the classes."""
        if isinstance(self.family, Multinomial):
            free = slice(self.num_features if self.alpha and self.l1_ratio else 0, None)
            coef = coef.copy()  # it may be where the solver began
            coef[:, free] -= coef[:, free].mean(axis=0)
        return coef

    def _prepared(self, x: Any, y: Any, weight: Any = None) -> tuple[Any, np.ndarray, np.ndarray]:
        if self.classes is not None:
            y = np.searchsorted(self.classes, y)
        x, y, weight = rows_of(x, y, weight)
        self.family.check(y)
        return x, y, weight

    def _weighted(self, ranks: Ranks, parts: list[Any]) -> list[Any]:
        """Weight each row with the weight of its class, too."""
        assert self.classes is not None
        num = len(self.classes)
        if isinstance(self.class_weight, str):
            counts = sum((np.bincount(y.astype(int), weight, num) for _, y, weight in parts), np.zeros(num))
            counts = ranks.all_reduce(counts)
            of_each = counts.sum() / (num * np.where(counts > 0, counts, np.inf))  # 0 where no row of it counts
        else:
            assert self.class_weight is not None
            of_each = np.array([self.class_weight.get(each, 1.0) for each in self.classes.tolist()])
        return [(x, y, weight * of_each[y.astype(int)]) for x, y, weight in parts]

    def _start(self, objective: Objective, mean: float) -> np.ndarray:
        if self.start is not None and self.start.size == objective.size:
            return np.asarray(self.start, np.float64).ravel()
        start = np.zeros(objective.size)
        if self.fit_intercept and self.classes is None:
            start[-1] = self.family.link(mean)
        return start

    def _separates(self, ranks: Ranks, parts: list[Any], objective: Objective, coef: np.ndarray) -> bool:
        """Return whether all rows that count are on their class's side."""
        if not isinstance(self.family, Logistic | Multinomial):
            return False
        wrong = any(self._is_wrong(objective.raw(coef, x), y, weight) for x, y, weight in blocks_of(parts))
        return int(ranks.all_reduce(np.array(int(wrong)))) == 0

    def _is_wrong(self, raw: np.ndarray, y: np.ndarray, weight: np.ndarray) -> bool:
        """Return whether some row that counts is not on its class's side."""
        if isinstance(self.family, Logistic):
            right = np.where(y > 0, raw > 0, raw < 0)
        else:
            own = raw[np.arange(len(y)), y.astype(int)]
            right = (raw >= own[:, None]).sum(axis=1) == 1
        return bool((~right & (weight > 0)).any())
