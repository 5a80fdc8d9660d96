"""Coordinate descent on a quadratic model with a penalty of absolute values, with an exact step to finish."""

from __future__ import annotations

import numpy as np

from dask_train.linear_model.solvers import ROUNDED, scales_of, solved_system

# Sweeps between two tries of the exact step, which costs as much as a decomposition.
_SWEEPS = 4
_MOST_SWEEPS = 20_000


def soft(values: np.ndarray, limit: np.ndarray) -> np.ndarray:
    """Values moved towards 0 by a limit, and 0 where they would pass it."""
    shrunk: np.ndarray = np.sign(values) * np.maximum(np.abs(values) - limit, 0.0)
    return shrunk


def violation(coef: np.ndarray, gradient: np.ndarray, l1: np.ndarray, hessian: np.ndarray | None = None) -> float:
    """Return how far coefficients are from a minimum: the largest part of the smallest subgradient.

    With a Hessian matrix, also of features whose unit makes their part of it small: each is measured in its own unit
    and in that of unit curvature, and the larger one counts.
    """
    moving = np.abs(gradient + l1 * np.sign(coef))
    resting = np.maximum(np.abs(gradient) - l1, 0.0)
    subgradient = np.where(coef != 0, moving, resting)
    if hessian is not None:
        subgradient = subgradient / np.minimum(scales_of(np.diag(hessian)), 1.0)
    return float(subgradient.max(initial=0.0))


def coordinate_descent(
    hessian: np.ndarray, gradient: np.ndarray, coef: np.ndarray, l1: np.ndarray, tol: float
) -> np.ndarray:
    """Minimise ``gradient @ (w - coef) + (w - coef) @ hessian @ (w - coef) / 2 + l1 @ abs(w)`` over w.

    One coordinate after the other, as Friedman, Hastie and Tibshirani have it ("Regularization paths for generalized
    linear models via coordinate descent", 2010, section 2.2, "covariance updates"). Every few sweeps the linear system
    of the coordinates that are not 0 is solved; where no sign changes, that is the end, to the last digits.

    Parameters
    ----------
    hessian
        Positive semidefinite, ``(size, size)``.
    gradient, coef, l1
        The model's gradient at ``coef``, the point, and the penalties, ``(size,)`` each.
    tol
        It stops where the :func:`violation` is no larger.

    Returns
    -------
    numpy.ndarray
        ``(size,)``, new.
    """
    w, slope, diagonal = coef.copy(), gradient.copy(), np.diag(hessian).copy()
    scale = scales_of(diagonal)
    free = np.flatnonzero(diagonal > 0)
    w[(diagonal <= 0) & (l1 > 0)] = 0.0  # nothing depends on them but the penalty
    for sweep in range(1, _MOST_SWEEPS):
        moved = 0.0
        for j in free.tolist():
            before = w[j]
            aim, limit = before * diagonal[j] - slope[j], l1[j]
            after = (aim - limit if aim > limit else aim + limit if aim < -limit else 0.0) / diagonal[j]
            if after != before:
                w[j] = after
                slope += (after - before) * hessian[j]
                moved = max(moved, abs(after - before) * scale[j])
        left = violation(w, slope, l1, hessian)
        # Sweeps that are stuck, or do with little: of features far from 0 they are slow, and the rest is one system.
        is_end = left <= tol or (sweep > _SWEEPS and moved <= ROUNDED * np.abs(w * scale).max(initial=0.0))
        if (is_end or sweep % _SWEEPS == 0) and (exact := _exact(hessian, slope, w, l1)) is not None:
            there = slope + hessian @ (exact - w)
            if (then := violation(exact, there, l1, hessian)) < left:
                w, slope = exact, there
                is_end = is_end or then <= max(tol, 1e-9 * left)
        if is_end:
            break
    return w


def _exact(hessian: np.ndarray, slope: np.ndarray, w: np.ndarray, l1: np.ndarray) -> np.ndarray | None:
    """Return the minimum among those of the same signs; None where they change."""
    on = np.flatnonzero((w != 0) | (l1 == 0))
    minimum = w.copy()
    minimum[on] -= solved_system(hessian[np.ix_(on, on)], slope[on] + l1[on] * np.sign(w[on]))
    same = (np.sign(minimum) == np.sign(w)) | (l1 == 0)
    return minimum if same.all() and np.isfinite(minimum).all() else None
