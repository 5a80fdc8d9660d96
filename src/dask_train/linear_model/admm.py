"""Consensus: each rank fits its own rows, and they agree step by step."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from dask_train.linear_model.coordinate_descent import soft, violation
from dask_train.linear_model.ranks import Ranks
from dask_train.linear_model.solvers import shortened, solved_system
from dask_train.linear_model.steps import UNASKED, Found, SolverSteps

# As Boyd et al. have them: over-relaxation (3.4.3), and when and how much the penalty of disagreement changes (3.4.1).
# With more relaxation the two work against each other: of a logistic problem of 90 rows 25 steps to 1e-8, at 1.6 105.
_RELAXED, _UNEVEN, _CHANGE = 1.2, 5.0, 2.0
# Of 500,000 x 50 rows in two halves, cut at random or by a feature, 0.3 takes as many or fewer passes over the rows to
# 1e-4 than 0.2, 0.5 and 1; and to leave this much in a rank's own problem no more than to leave a third of it.
_FIRST, _LOCAL = 0.3, 0.3
# From then on it stays as it is, which lets the method converge.
_LAST_CHANGE = 100
# Of one rank's own problem; a step has to leave less of the gradient, or it was one with too old a Hessian matrix.
_MOST_STEPS, _ENOUGH = 30, 0.25
_MEASURED_ANEW = frozenset({2, 4, 8, 16, 32, 64})


class Problem(Protocol):
    """An :class:`~.objective.Objective`, as far as it is needed here."""

    size: int
    penalty: np.ndarray
    l1: np.ndarray

    def evaluate(self, coef: np.ndarray, order: int) -> list[np.ndarray]:
        """Sum over all ranks what is known at a point."""

    def own(self, coef: np.ndarray, order: int) -> list[np.ndarray]:
        """Sum what this rank knows of it."""


def admm(
    ranks: Ranks,
    objective: Problem,
    start: np.ndarray,
    tol: float,
    max_iter: int,
    hessians: tuple[np.ndarray, np.ndarray] | None = None,
    *,
    steps: SolverSteps = UNASKED,
) -> Found:
    """Return the alternating direction method of multipliers, on all ranks at once.

    Each rank minimises the loss of its own rows plus its distance to what all agree on; then they agree anew, on the
    mean of what they have, under the penalties (Boyd, Parikh, Chu, Peleato and Eckstein, "Distributed optimization and
    statistical learning via the alternating direction method of multipliers", 2011, section 7). The distance is
    measured by the curvature of each coefficient, so that the scale of the features does not matter. Multipliers begin
    with what the gradient of a rank is off the mean of all by, which makes the first step that of DANE (Shamir, Srebro
    and Zhang, "Communication-efficient distributed optimization using an approximate Newton-type method", 2014).

    Parameters
    ----------
    ranks
        The ranks that fit.
    objective
        The problem.
    start, tol, max_iter
        As other solvers take them.
    hessians
        About the Hessian matrices of all rows, and of this rank's as a part of them, where it begins.
    steps
        What happens between two of them.

    Returns
    -------
    tuple
        Coefficients, steps, and whether it has converged; the same on all ranks: all that they decide by is made of
        sums that are the same everywhere, element by element, so that no processor rounds it differently.
    """
    num_ranks = int(ranks.all_reduce(np.array(1)))
    l2, l1 = objective.penalty, objective.l1
    own = _Own(objective, None if hessians is None else hessians[1])
    steps.enter()
    if steps.state is None:
        every = objective.evaluate(start, 2)[2] if hessians is None else hessians[0]
        agreed, near, scale = start, _FIRST * _curvature(every) / num_ranks, _FIRST
        value, gradient = objective.evaluate(start, 1)
        dual = ((gradient + l1 * np.sign(start)) / num_ranks - objective.own(start, 1)[1]) / near
        left, loss = violation(agreed, gradient, l1), float(value + l1 @ np.abs(agreed))
    else:
        agreed, near, scale, left, loss = steps.state
        dual, *made = steps.own
        own.make_again(*made)
    for step in range(steps.first, max_iter + 1):
        if steps.passed(step, loss, (agreed, near, scale, left, loss), (dual, own.at, own.is_first)):
            return agreed, step, False
        if left <= tol:
            return agreed, step, True
        if step == max_iter:
            break
        mine = own.nearest(agreed, agreed - dual, near, _LOCAL * min(left, 1.0) / num_ranks)
        relaxed = _RELAXED * mine + (1 - _RELAXED) * agreed
        pulled = ranks.all_reduce(near * (relaxed + dual))
        before, agreed = agreed, soft(pulled, l1) / (num_ranks * near + l2)
        dual = dual + relaxed - agreed
        # The curvature of a logistic loss, say, goes down by orders of magnitude; a sample's is that near the end.
        if hessians is None and step in _MEASURED_ANEW:
            anew = scale * _curvature(objective.evaluate(agreed, 2)[2]) / num_ranks
            near, dual = anew, dual * near / anew
            own.forget()
        apart, moved = ranks.all_reduce(np.array([near @ (mine - agreed) ** 2, near @ (agreed - before) ** 2]))
        if step < _LAST_CHANGE and not 1 / _UNEVEN**2 <= apart / max(moved, 1e-300) <= _UNEVEN**2:
            change = _CHANGE if apart > moved else 1 / _CHANGE
            near, dual, scale = near * change, dual / change, scale * change
        value, gradient = objective.evaluate(agreed, 1)
        left, loss = violation(agreed, gradient, l1), float(value + l1 @ np.abs(agreed))
    return agreed, max_iter, False


def _curvature(hessian: np.ndarray) -> np.ndarray:
    curvature = np.diag(hessian)
    return np.maximum(curvature, max(1e-8 * float(curvature.max(initial=0.0)), 1e-300))


class _Own:
    """The loss of one rank's own rows, as a part of the mean loss of all.

    Attributes
    ----------
    at
        The point of the Hessian matrix; None of the one that was passed, and if there is none.
    is_first
        Whether it is the one that was passed.
    """

    def __init__(self, objective: Problem, hessian: np.ndarray | None) -> None:
        self._objective = objective
        self._hessian, self.is_first = hessian, True
        self.at: np.ndarray | None = None

    def forget(self) -> None:
        """Make a new Hessian matrix when one is needed."""
        self._hessian, self.at, self.is_first = None, None, False

    def make_again(self, at: np.ndarray | None, is_first: bool) -> None:
        """Have the Hessian matrix of another process, which had these attributes."""
        if not is_first:
            self.forget()
        if at is not None:
            self._make(at)

    def _make(self, at: np.ndarray) -> np.ndarray:
        self._hessian, self.at, self.is_first = self._objective.own(at, 2)[2], at, False
        return self._hessian

    def nearest(self, start: np.ndarray, wanted: np.ndarray, near: np.ndarray, tol: float) -> np.ndarray:
        """Minimise the loss plus ``near @ (w - wanted)**2 / 2``.

        By Newton's method with a Hessian matrix of some steps before, which is almost as good, as steps become short,
        and saves most of the work; where a step brings little, a new one is made.
        """

        def evaluate(coef: np.ndarray, order: int) -> list[np.ndarray]:
            derivatives = list(self._objective.own(coef, order))
            derivatives[0] = np.asarray(derivatives[0] + 0.5 * near @ (coef - wanted) ** 2)
            if order > 0:
                derivatives[1] = derivatives[1] + near * (coef - wanted)
            return derivatives

        coef, before = start, np.inf
        value, gradient = evaluate(coef, 1)
        for _ in range(_MOST_STEPS):
            left = float(np.abs(gradient).max(initial=0.0))
            if left <= tol:
                break
            hessian = self._hessian
            if hessian is None or left > _ENOUGH * before:
                hessian = self._make(coef)
            direction = -solved_system(hessian + np.diag(near), gradient)
            further = shortened(evaluate, coef, float(value), direction, float(-gradient @ direction), order=1)
            if further is None:
                break
            coef, (value, gradient) = further
            before = left
        return coef
