"""Least squares, with and without a penalty of the squared coefficients: one pass, by QR decompositions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import linalg

from dask_train.linear_model.moments import moments
from dask_train.linear_model.ranks import Ranks
from dask_train.linear_model.rows import blocks_of, dense, rows_of
from dask_train.linear_model.solvers import scales_of

# A column whose values differ by so little, relative to their mean, is constant.
_CONSTANT = 1e-13


@dataclass(frozen=True, kw_only=True)
class LeastSquares:
    """The problem; called with the ranks that solve it, it gives ``(features + 1, targets)``, the intercept last.

    Tall and skinny pieces are decomposed where they lie, and the triangles of all ranks together (Demmel, Grigori,
    Hoemmen and Langou, "Communication-optimal parallel and sequential QR and LU factorizations", 2012). Unlike with the
    normal equations, the condition of the features is not squared, and their units do not matter, as each column is
    divided by its length. Of collinear columns it is the shortest solution, as far as rounding allows.
    """

    alpha: float
    fit_intercept: bool
    num_features: int

    def __call__(self, ranks: Ranks) -> np.ndarray:
        """Return the same on all ranks."""
        parts = [_prepared(*part) for part in ranks.partitions()]
        total, means, num_targets = moments(ranks, parts, self.num_features)
        width = self.num_features + num_targets
        if not self.fit_intercept:
            means = np.zeros(width)
        triangle = np.empty((0, width))
        for x, y, weight in blocks_of(parts):
            rows = np.column_stack([dense(x), y]) - means
            rows *= np.sqrt(weight)[:, None]
            triangle = linalg.qr(np.concatenate([triangle, rows]), mode="r", overwrite_a=True)[0][:width]
        every = ranks.all_gather(triangle)
        return self._solved(every, means, total)

    def _solved(self, every: np.ndarray, means: np.ndarray, total: float) -> np.ndarray:
        of_x, of_y = every[:, : self.num_features].copy(), every[:, self.num_features :]
        lengths = np.sqrt((of_x**2).sum(axis=0))
        # What is left of a constant column is rounding.
        of_x[:, lengths <= _CONSTANT * np.sqrt(total) * np.abs(means[: self.num_features])] = 0.0
        if self.alpha:
            of_x = np.concatenate([of_x, np.sqrt(self.alpha) * np.eye(self.num_features)])
            of_y = np.concatenate([of_y, np.zeros((self.num_features, of_y.shape[1]))])
        coef = _shortest(of_x, of_y)
        intercept = means[self.num_features :] - means[: self.num_features] @ coef
        return np.concatenate([coef, intercept[None]])


def _shortest(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the shortest solution of least squares; see :func:`.solvers.solved_system`."""
    limit = max(x.shape) * np.finfo(float).eps
    scale = scales_of((x**2).sum(axis=0))
    scaled = x / scale
    in_these, _, rank, _ = linalg.lstsq(scaled, y, cond=limit)
    solution: np.ndarray = in_these / scale[:, None]
    if rank == x.shape[1]:
        return solution
    shortest: np.ndarray = linalg.lstsq(x, y, cond=limit)[0]
    left = np.abs(scaled.T @ (x @ shortest - y)).max(initial=0.0)
    return shortest if left <= 1e-8 * np.sqrt((y**2).sum(axis=0)).max(initial=0.0) else solution


def _prepared(x: Any, y: Any, weight: Any = None) -> tuple[Any, np.ndarray, np.ndarray]:
    x, y, weight = rows_of(x, y, weight)
    return x, y.reshape(len(y), -1), weight
