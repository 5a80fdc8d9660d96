"""Solvers of problems with a penalty of absolute values, which has no gradient where coefficients are 0.

Functions of what is summed over all ranks, that run in the first one, as :mod:`dask_train.linear_model.solvers`.
"""

from __future__ import annotations

import numpy as np

from dask_train.linear_model.coordinate_descent import coordinate_descent, soft, violation
from dask_train.linear_model.ranks import Evaluate
from dask_train.linear_model.solvers import ROUNDED, shortened
from dask_train.linear_model.steps import UNASKED, Found, SolverSteps

_LONGEST = 2.0**40


def newton_cd(
    evaluate: Evaluate, start: np.ndarray, tol: float, max_iter: int, l1: np.ndarray, *, steps: SolverSteps = UNASKED
) -> Found:
    """Newton's steps with the penalty, each by coordinate descent on the summed Hessian matrix.

    As in glmnet, with a line search (Yuan, Ho and Lin, "An improved GLMNET for L1-regularized logistic regression",
    2012). The Hessian matrix of squared errors is the Gram matrix: the first step is the last.
    """
    if steps.state is None:
        coef, is_rounding = start, False
        value, gradient, hessian = evaluate(coef, 2)
    else:
        coef, is_rounding, value, gradient, hessian = steps.state
    for step in range(steps.first, max_iter + 1):
        loss = float(value + l1 @ np.abs(coef))
        if steps.passed(step, loss, (coef, is_rounding, float(value), gradient, hessian)):
            return coef, step, False
        left = violation(coef, gradient, l1, hessian)
        if left == 0.0:
            return coef, step, True
        target = coordinate_descent(hessian, gradient, coef, l1, 1e-3 * left)
        direction = target - coef
        slope = -float(gradient @ direction + l1 @ (np.abs(target) - np.abs(coef)))
        was_rounding, is_rounding = is_rounding, bool(slope / 2 <= ROUNDED * abs(value) <= tol)
        if (left <= tol and slope / 2 <= tol) or (was_rounding and is_rounding):
            return coef, step, True
        if step == max_iter:
            break
        further = shortened(evaluate, coef, float(value), direction, slope, l1)
        if further is None:
            return coef, step, False
        coef, (value, gradient, hessian) = further
    return coef, max_iter, False


def proximal_gradient(
    evaluate: Evaluate, start: np.ndarray, tol: float, max_iter: int, l1: np.ndarray, *, steps: SolverSteps = UNASKED
) -> Found:
    """Accelerated proximal gradient (Beck and Teboulle, "A fast iterative shrinkage-thresholding algorithm", 2009).

    The momentum starts again where it points uphill (O'Donoghue and Candès, "Adaptive restart for accelerated gradient
    schemes", 2015). A step is as long as the curvature that it meets lets it be.
    """
    if steps.state is None:
        coef, momentum, curvature, beyond = start, 1.0, 1.0, None
        value, gradient = evaluate(coef, 1)
        loss = float(value + l1 @ np.abs(coef))
    else:
        coef, momentum, curvature, beyond, value, gradient, loss = steps.state
    ahead = coef if beyond is None else beyond
    for step in range(steps.first, max_iter + 1):
        beyond = None if ahead is coef else ahead
        if steps.passed(step, loss, (coef, momentum, curvature, beyond, float(value), gradient, loss)):
            return coef, step, False
        if ahead is coef and violation(coef, gradient, l1) <= tol:
            return coef, step, True
        if step == max_iter:
            break
        while True:
            further = soft(ahead - gradient / curvature, l1 / curvature)
            moved = further - ahead
            there, slopes = evaluate(further, 1)
            squared, met = float(moved @ moved), float(moved @ (slopes - gradient))
            # Near the end values differ by rounding only; what the slopes say is as good, as the loss is convex.
            promised = value + gradient @ moved + 0.5 * curvature * squared + ROUNDED * abs(value)
            if np.isfinite(there) and (there <= promised or met <= 0.5 * curvature * squared):
                break
            if curvature > _LONGEST * _LONGEST:
                return coef, step, False
            curvature *= 2
        curvature = max(0.7 * curvature, met / squared) if squared else curvature
        uphill = float((ahead - further) @ (further - coef)) > 0
        following = 1.0 if uphill else 0.5 + np.sqrt(0.25 + momentum**2)
        before, coef, loss = coef, further, float(there + l1 @ np.abs(further))
        if uphill or momentum == 1.0 or violation(coef, slopes, l1) <= tol:
            ahead, value, gradient = coef, there, slopes
        else:
            ahead = coef + (momentum - 1) / following * (coef - before)
            value, gradient = evaluate(ahead, 1)
        momentum = following
    return coef, max_iter, False
