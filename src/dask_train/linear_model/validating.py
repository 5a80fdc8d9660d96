"""Scores of a model that was just fitted, on rows to validate on: sums over the ranks that have fitted it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dask_train.data.indicators import Indicators
from dask_train.linear_model.families import Family, Multinomial
from dask_train.linear_model.fitting import Fitted, Task
from dask_train.linear_model.moments import check_total
from dask_train.linear_model.rows import blocks_of, rows_of


@dataclass(frozen=True, kw_only=True)
class ScoredRows:
    """Rows to validate on.

    Attributes
    ----------
    dataset
        Under which name roles open them.
    places
        The numbers of the columns of features, targets and perhaps weights.
    indicators
        Makes features of rows with codes of categories. Default: there are none.
    """

    dataset: str
    places: tuple[int, ...]
    indicators: Indicators | None = None

    def scores(self, problem: Any, found: Any, session: Any) -> dict[str, float]:
        """Return ``val_loss``, and ``val_accuracy`` of classes or ``val_r2`` of least squares; all ranks at once.

        The loss is the mean over the rows, each with its own weight: without penalties, weights of classes, and what
        does not depend on the model. So it compares models whose penalties or weights of classes differ.

        Parameters
        ----------
        problem
            What was solved: a :class:`Task`, or one of least squares.
        found
            What it gave.
        session
            Of the role.

        Raises
        ------
        ValueError
            Rows can't be of such a model, or none counts.
        """
        parts = [picked(part, self.places, self.indicators) for part in session.dataset(self.dataset).partitions()]
        if isinstance(problem, Task):
            return _of_family(problem, found.coef, session, parts)
        return _of_squares(_coef_of(found), session, parts)


def picked(part: Any, places: Sequence[int], indicators: Indicators | None = None) -> tuple[Any, ...]:
    """Return some columns of a partition, in that order; of the first, codes become indicators."""
    columns = list(part.values()) if isinstance(part, dict) else part
    x, *others = (columns[place] for place in places)
    return (x if indicators is None else indicators.decoded(x), *others)


def _coef_of(solution: Any) -> np.ndarray:
    """Return ``(targets, features + 1)``, the intercept last."""
    if isinstance(solution, np.ndarray):
        return solution.T
    several: list[Fitted] = solution
    return np.concatenate([each.coef for each in several])


def _raw(x: Any, coef: np.ndarray, num_features: int) -> np.ndarray:
    raw: np.ndarray = x @ coef[:, :num_features].T
    return raw + coef[:, num_features] if coef.shape[1] > num_features else raw


def _of_family(problem: Task, coef: np.ndarray, session: Any, parts: Sequence[Any]) -> dict[str, float]:
    family, classes = problem.family, problem.classes
    sums = np.zeros(3)
    for x, y, weight in blocks_of([_prepared(family, classes, *part) for part in parts]):
        raw = _raw(x, coef, problem.num_features)
        of_one = raw if family.num_outputs else raw[:, 0]
        right = raw.argmax(axis=1) == y if isinstance(family, Multinomial) else (raw[:, 0] > 0) == y
        sums += [weight.sum(), weight @ family.loss(y, of_one), weight @ right]
    total, loss, rightly = session.all_reduce(sums)
    total = check_total(float(total))
    scores = {"val_loss": float(loss) / total}
    return scores if classes is None else {**scores, "val_accuracy": float(rightly) / total}


def _prepared(family: Family, classes: np.ndarray | None, x: Any, y: Any, weight: Any = None) -> tuple[Any, ...]:
    if classes is not None:
        if unknown := sorted(set(np.unique(y).tolist()) - set(classes.tolist())):
            raise ValueError(
                f"validation_data has labels that the data to train on has not, such as {unknown[0]!r}. Leave such "
                "rows out."
            )
        y = np.searchsorted(classes, y)
    x, y, weight = rows_of(x, y, weight)
    family.check(y)
    return x, y, weight


def _of_squares(coef: np.ndarray, session: Any, parts: Sequence[Any]) -> dict[str, float]:
    """Return the scores of least squares, in two passes: no digits are lost where the targets' mean is far from 0."""
    num_targets, num_features = len(coef), coef.shape[1] - 1
    rows = [(x, y.reshape(len(y), -1), weight) for x, y, weight in (rows_of(*part) for part in parts)]
    sums = np.zeros((3, num_targets))
    for x, y, weight in blocks_of(rows):
        sums += [np.full(num_targets, weight.sum()), weight @ y, weight @ (y - _raw(x, coef, num_features)) ** 2]
    total, targets, left = session.all_reduce(sums)
    check_total(float(total[0]))
    squares = [weight @ (y - targets / total) ** 2 for _, y, weight in rows]
    whole = session.all_reduce(np.sum(squares, axis=0) if squares else np.zeros(num_targets))
    shares = np.where(whole == 0, np.where(left == 0, 1.0, 0.0), 1 - left / np.where(whole == 0, 1.0, whole))
    return {"val_loss": float(np.mean(left / total)) / 2, "val_r2": float(np.mean(shares))}
