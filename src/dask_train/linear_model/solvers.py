"""Solvers of smooth problems: functions of what is summed over all ranks, that run in the first one."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import linalg, optimize

from dask_train.linear_model.ranks import Evaluate
from dask_train.linear_model.steps import UNASKED, Found, SolverSteps

# Armijo's: a step has to bring this share of what the slope promises.
_PROMISED = 1e-4
_SHORTEST = 2.0**-40
# An earlier Hessian matrix will do where the slope along Newton's step is so small, for losses of about unit curvature;
# as long as each step makes it smaller by this factor.
_NEAR, _ENOUGH = 1e-3, 1 / 30
# What a value may be off by rounding, relative to it.
ROUNDED = 16 * np.finfo(float).eps

# What is left of a gradient, for unit curvature, where a step of rounding is all that a value can go down by: about
# the root of 64 rounding errors, and 100 times that for curvatures that differ.
_AT_ROUNDING = 1e-5


def newton_cholesky(
    evaluate: Evaluate,
    start: np.ndarray,
    tol: float,
    max_iter: int,
    hessian: np.ndarray | None = None,
    *,
    steps: SolverSteps = UNASKED,
) -> Found:
    """Newton's steps, shortened where they are too long (Nocedal and Wright, "Numerical Optimization", 2006, ch. 3).

    Each solves with the Hessian matrix; see :func:`solved_system` for a singular one, as of collinear columns or an
    intercept of each class. It costs several times as much as a gradient, so near the minimum that of an earlier point
    is taken as long as each step with it brings enough (Shamanskii, "A modification of Newton's method", 1967), and at
    first that of a sample of the rows, where there is one (Roosta-Khorasani and Mahoney, "Sub-sampled Newton methods",
    2019).
    """
    if steps.state is None:
        coef, is_rounding, before, is_own = start, False, np.inf, hessian is None
        value, gradient, *own = evaluate(coef, 2 if is_own else 1)
        curved = own[0] if hessian is None else hessian
    else:
        coef, is_rounding, before, is_own, value, gradient, curved = steps.state
    for step in range(steps.first, max_iter + 1):
        if steps.passed(step, float(value), (coef, is_rounding, before, is_own, float(value), gradient, curved)):
            return coef, step, False
        direction, decrement = _newton_step(curved, gradient)
        if not is_own and not decrement <= _ENOUGH * before:
            (value, gradient, curved), is_own = evaluate(coef, 2), True
            direction, decrement = _newton_step(curved, gradient)
        is_known = is_own or before < np.inf  # of the first step with a sample's it is not, whether it brings anything
        if is_known and np.abs(gradient).max(initial=0.0) <= tol and decrement / 2 <= tol:
            return coef, step, True
        was_rounding, is_rounding = is_rounding, is_known and bool(decrement / 2 <= ROUNDED * abs(value) <= tol)
        if was_rounding and is_rounding:  # of features in small units a gradient has no more digits than that
            return coef, step, True
        if step == max_iter:
            break
        order = 1 if not is_own or decrement <= _NEAR else 2
        further = shortened(evaluate, coef, float(value), direction, decrement, order=order)
        if further is not None:
            coef, (value, gradient, *own) = further
            before, is_own = decrement, bool(own)
            curved = own[0] if own else curved
        elif is_own:
            return coef, step, False
        else:
            before = 0.0  # then nothing is enough
    return coef, max_iter, False


def _newton_step(hessian: np.ndarray, gradient: np.ndarray) -> tuple[np.ndarray, float]:
    """Return a direction, and its slope downwards."""
    direction = -solved_system(hessian, gradient)
    return direction, float(-gradient @ direction)


def solved_system(hessian: np.ndarray, gradient: np.ndarray) -> np.ndarray:
    """Return the solution of ``hessian @ x = gradient`` by Cholesky's decomposition, of a singular one the shortest.

    Rows and columns are divided by the roots of the diagonal first, so that the units of the features do not matter
    (van der Sluis, "Condition numbers and equilibration of matrices", 1969). Where units are so far apart that the
    shortest solution of a singular system is hidden by rounding, it is the shortest one of these units.
    """
    scale = scales_of(np.diag(hessian))
    scaled, wanted = hessian / np.outer(scale, scale), gradient / scale
    try:
        factor = linalg.cho_factor(scaled, lower=True)
        diagonal = np.diag(factor[0])
        if diagonal.size and diagonal.min() > 1e-7 * diagonal.max():
            solution: np.ndarray = linalg.cho_solve(factor, wanted) / scale
            return solution
    except linalg.LinAlgError:
        pass
    shortest: np.ndarray = linalg.lstsq(hessian, gradient, cond=1e-12)[0]
    left = np.abs(scaled @ (shortest * scale) - wanted).max(initial=0.0)
    if left <= 1e-6 * np.abs(wanted).max(initial=0.0):
        return shortest
    in_these: np.ndarray = linalg.lstsq(scaled, wanted, cond=1e-12)[0] / scale
    return in_these


def scales_of(squares: np.ndarray) -> np.ndarray:
    """Return the roots of what is above 0, and 1 for the rest: what to divide by."""
    return np.sqrt(np.where(squares > 0, squares, 1.0))


def shortened(
    evaluate: Evaluate,
    coef: np.ndarray,
    value: float,
    direction: np.ndarray,
    slope: float,
    l1: np.ndarray | float = 0.0,
    *,
    order: int = 2,
) -> tuple[np.ndarray, list[np.ndarray]] | None:
    """Go so far in a direction that the value becomes less; None if rounding lets it no more.

    Returns
    -------
    tuple or None
        Where it is, and what there is to know there, of ``order``. A whole step is mostly right, so all is asked for
        there at once; of shorter ones the value alone.
    """
    value += float(np.sum(l1 * np.abs(coef)))
    length = 1.0
    while length > _SHORTEST:
        further = coef + length * direction
        derivatives = evaluate(further, order if length == 1.0 else 0)
        there = derivatives[0] + np.sum(l1 * np.abs(further))
        if there <= value - _PROMISED * length * slope + ROUNDED * abs(value):  # of NaN and infinity it is false
            return further, derivatives if len(derivatives) > order else evaluate(further, order)
        length /= 2
    return None


def lbfgs(evaluate: Evaluate, start: np.ndarray, tol: float, max_iter: int, *, steps: SolverSteps = UNASKED) -> Found:
    """SciPy's L-BFGS-B (Zhu, Byrd, Lu and Nocedal, 1997), with scikit-learn's settings.

    It also stops where steps bring no more than rounding; that is an end if the gradient is as small as it is there.
    What SciPy holds can't be taken, so its state is all that was evaluated, which is fed to it again when it resumes.
    """

    if max_iter == 0:  # of which SciPy takes a step
        return start, 0, False
    evaluated: list[Any] = list(steps.state or ())
    again, step = iter(tuple(evaluated)), 0
    start = evaluated[0][0] if evaluated else start

    def both(coef: np.ndarray) -> tuple[float, np.ndarray]:
        point, value, gradient = next(again, (None, 0.0, coef))
        if point is None or not np.array_equal(point, coef):  # another processor may round differently
            value, gradient = evaluate(coef, 1)
            if steps.keeps:
                evaluated.append((coef.copy(), float(value), gradient))
        return float(value), gradient

    def stepped(intermediate_result: optimize.OptimizeResult) -> None:
        nonlocal step
        step += 1
        if steps.passed(step, float(intermediate_result.fun), evaluated[:]):
            raise StopIteration

    options = {"maxiter": max_iter, "maxls": 50, "gtol": tol, "ftol": 64 * np.finfo(float).eps}
    result = optimize.minimize(both, start, method="L-BFGS-B", jac=True, options=options, callback=stepped)
    rounded = _AT_ROUNDING * max(1.0, float(np.sqrt(abs(result.fun))))
    is_end = np.abs(result.jac).max(initial=0.0) <= max(tol, rounded)
    return result.x, int(result.nit), bool(result.success and is_end)


def gradient_descent(
    evaluate: Evaluate, start: np.ndarray, tol: float, max_iter: int, *, steps: SolverSteps = UNASKED
) -> Found:
    """Steepest descent, a step as long as Barzilai and Borwein (1988) have it, shortened where that is too long.

    A step may lead uphill, but not above the last ten (Raydan, "The Barzilai and Borwein gradient method for the large
    scale unconstrained minimization problem", 1997): to go down all the time makes it as slow as other descents.
    """
    if steps.state is None:
        coef, length = start, 1.0
        value, gradient = evaluate(coef, 1)
        last = [float(value)]
    else:
        coef, length, gradient, last = steps.state
    for step in range(steps.first, max_iter + 1):
        if steps.passed(step, last[-1], (coef, length, gradient, last)):
            return coef, step, False
        if np.abs(gradient).max(initial=0.0) <= tol:
            return coef, step, True
        if step == max_iter:
            break
        slope = float(gradient @ gradient) * length
        shorter = shortened(evaluate, coef, max(last), -length * gradient, slope, order=1)
        if shorter is None:
            return coef, step, False
        further, (value, there) = shorter
        last = [*last[-9:], float(value)]
        moved, turned = further - coef, there - gradient
        curved = float(moved @ turned)
        length = float(moved @ moved) / curved if curved > 0 else 1.0
        coef, gradient = further, there
    return coef, max_iter, False
