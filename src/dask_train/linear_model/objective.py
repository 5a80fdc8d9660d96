"""The penalised mean loss of a linear model over all ranks, its gradient and its Hessian matrix."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from typing import Any, Self

import numpy as np

from dask_train.linear_model.families import Family, Multinomial
from dask_train.linear_model.ranks import Ranks
from dask_train.linear_model.rows import blocks_of, dense
from dask_train.linear_model.sampling import Sample


class Objective:
    """A function of coefficients, summed over the partitions of all ranks.

    Coefficients are one vector: ``(features, [intercept])``, or those of each class after the other.

    Parameters
    ----------
    ranks
        The ranks that have the rows.
    parts
        This rank's: of each features ``(n, p)``, targets and weights ``(n,)``.
    family
        The loss.
    num_features
        How many there are.
    fit_intercept
        Whether each output has an intercept, which is not penalised.
    penalty, l1
        Of half the squared coefficients, and of the absolute ones, added to the mean of the losses.
    total
        The weight of all rows of all ranks.
    centre
        Of the features, ``(p,)``; taken off the rows, a block at a time.

    Attributes
    ----------
    num_features, num_outputs, width, size, total
        Counts; of an output, and of all. The weight of all rows.
    penalty, l1
        ``(size,)`` each: of each coefficient. :meth:`evaluate` has the first one only, as the other is not smooth.
    """

    def __init__(  # noqa: PLR0913 - a problem has so many parts
        self,
        ranks: Ranks,
        parts: list[Any],
        family: Family,
        num_features: int,
        *,
        fit_intercept: bool,
        penalty: float,
        total: float,
        l1: float = 0.0,
        centre: np.ndarray | None = None,
    ) -> None:
        self.family, self.num_outputs = family, max(1, family.num_outputs)
        self._ranks, self._parts, self.num_features, self._intercept = ranks, parts, num_features, fit_intercept
        self.width = num_features + fit_intercept
        self.size = self.width * self.num_outputs
        self.total, self._centre = total, centre
        penalised = np.zeros((self.num_outputs, self.width))
        penalised[:, :num_features] = 1.0
        self.penalty, self.l1 = penalty * penalised.ravel(), l1 * penalised.ravel()
        self._constant: np.ndarray | None = None  # the Hessian matrix of all ranks where it is the same everywhere
        self._last: tuple[np.ndarray, list[np.ndarray]] | None = None

    def of(self, sample: Sample) -> Self:
        """Return the mean loss of some of the rows, with the same penalties."""
        sampled = copy(self)
        sampled._parts, sampled.total, sampled._constant, sampled._last = sample.parts, sample.total, None, None
        return sampled

    def evaluate(self, coef: np.ndarray, order: int) -> list[np.ndarray]:
        """Return the value; from order 1 on its gradient ``(size,)``, from order 2 on its Hessian ``(size, size)``."""
        known = order > 1 and self._constant is not None
        derivatives = self._ranks.all_reduce(self.own(coef, 1 if known else order))
        if known:
            derivatives.append(self._constant)
        elif order > 1 and type(self.family) is Family and not self._ranks.steps.replaceable:
            self._constant = derivatives[2]
        derivatives[0] = np.asarray(derivatives[0] + 0.5 * self.penalty @ coef**2)
        if order > 0:
            derivatives[1] = derivatives[1] + self.penalty * coef
        if order > 1:
            derivatives[2] = derivatives[2] + np.diag(self.penalty)
        return derivatives

    def own(self, coef: np.ndarray, order: int) -> list[np.ndarray]:
        """Return this rank's part of what :meth:`evaluate` sums, without penalties."""
        if self._last is None or len(self._last[1]) <= order or not np.array_equal(self._last[0], coef):
            self._last = coef.copy(), self._of_rows(coef, order)
        return self._last[1][: order + 1]

    def _of_rows(self, coef: np.ndarray, order: int) -> list[np.ndarray]:
        sums = [np.zeros(1), np.zeros(self.size), np.zeros((self.size, self.size))][: order + 1]
        with np.errstate(over="ignore", invalid="ignore"):  # a step that is too long is seen by its value
            for x, y, weight in self.blocks():
                self._add(sums, coef, x, y, weight)
        sums[0] = sums[0][0]
        return [np.asarray(each / self.total) for each in sums]

    def blocks(self) -> Iterator[tuple[Any, np.ndarray, np.ndarray]]:
        """Yield this rank's rows, some at a time."""
        for x, y, weight in blocks_of(self._parts):
            yield (x if self._centre is None else dense(x) - self._centre), y, weight

    def raw(self, coef: np.ndarray, x: Any) -> np.ndarray:
        """Return the predictions before the link."""
        of_each = coef.reshape(self.num_outputs, self.width)
        raw: np.ndarray = x @ of_each[:, : self.num_features].T
        if self._intercept:
            raw = raw + of_each[:, -1]
        return raw if self.family.num_outputs else raw[:, 0]

    def _add(self, sums: list[np.ndarray], coef: np.ndarray, x: Any, y: np.ndarray, weight: np.ndarray) -> None:
        raw = self.raw(coef, x)
        sums[0] += weight @ self.family.loss(y, raw)
        if len(sums) > 1:
            slopes = self.family.gradient(y, raw).reshape(len(y), -1) * weight[:, None]
            sums[1] += self._with_intercept(x.T @ slopes, slopes.sum(axis=0)).T.ravel()
        if len(sums) > 2:
            self._add_hessian(sums[2], x, y, raw, weight)

    def _with_intercept(self, of_features: np.ndarray, of_intercept: np.ndarray) -> np.ndarray:
        return np.concatenate([of_features, of_intercept[None]]) if self._intercept else of_features

    def _add_hessian(self, hessian: np.ndarray, x: Any, y: np.ndarray, raw: np.ndarray, weight: np.ndarray) -> None:
        if not isinstance(self.family, Multinomial):
            hessian += self._gram(x, weight * self.family.curvature(y, raw))
            return
        chances = self.family.gradient(np.zeros(len(y)), raw)
        chances[:, 0] += 1
        width = self.width
        for one in range(self.num_outputs):
            for other in range(one + 1):
                if one == other:
                    gram = self._gram(x, weight * chances[:, one] * (1 - chances[:, one]))
                else:
                    gram = -self._gram(x, weight * chances[:, one] * chances[:, other])
                at = slice(one * width, (one + 1) * width), slice(other * width, (other + 1) * width)
                hessian[at] += gram
                if one != other:
                    hessian[at[::-1]] += gram.T

    def _gram(self, x: Any, weight: np.ndarray) -> np.ndarray:
        """Return the Gram matrix of rows with an intercept, each with its weight."""
        if hasattr(x, "multiply"):
            scaled = x.multiply(weight[:, None]).tocsr()
            gram, border = (x.T @ scaled).toarray(), np.asarray(scaled.sum(axis=0)).ravel()
        else:
            scaled = x * np.sqrt(weight)[:, None]
            gram = scaled.T @ scaled  # by dsyrk, which NumPy chooses where both are the same: half the work
            border = weight @ x
        if not self._intercept:
            return np.asarray(gram)
        return np.block([[gram, border[:, None]], [border[None], np.array([[weight.sum()]])]])
