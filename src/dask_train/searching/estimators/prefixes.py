"""Candidates of a pipeline on one fold: each distinct beginning of it is fitted once, for all that have it in common.

The way of dask-learn (Crist, 2017), within a process: the tree of beginnings is gone through depth first, so that what
steps have made of the rows is kept along one path of it at a time.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.pipeline import Pipeline

from dask_train.identity.digest import digest
from dask_train.searching.estimators.scoring import Scoring
from dask_train.searching.estimators.weights import fit

_PASSED = (None, "passthrough")


@dataclass(frozen=True, kw_only=True)
class FoldScore:
    """Result of a candidate on one fold; seconds of all of its steps, also of those that it shares."""

    candidate: int
    scores: Mapping[str, float] = field(default_factory=dict)
    fit_s: float = 0.0
    score_s: float = 0.0
    error: str = ""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """An estimator with its parameters; ``steps`` are those of a pipeline that do something, the last one at last."""

    number: int
    whole: Any
    steps: list[tuple[str, Any]]

    @cached_property
    def keys(self) -> list[tuple[str, str]]:
        """Name and identity of each step, before it is fitted; equal ones of equal beginnings are fitted once."""
        return [(name, digest(step)) for name, step in self.steps]


@dataclass(frozen=True)
class Fold:
    """The rows of a fold as they are after some steps, their weights, and how long these steps took."""

    X: Any
    y: Any
    X_test: Any
    y_test: Any
    weight: Any = None
    weight_test: Any = None
    fit_s: float = 0.0
    score_s: float = 0.0


def candidate_of(number: int, estimator: Any, params: Mapping[str, Any]) -> Candidate:
    """Return a candidate: a copy of the estimator with these parameters, which are copied too.

    Raises
    ------
    ValueError
        It has no such parameters.
    """
    whole = clone(estimator)
    whole.set_params(**{name: clone(value, safe=False) for name, value in params.items()})
    if type(whole) is not Pipeline or whole.transform_input or whole.steps[-1][1] in _PASSED:
        return Candidate(number=number, whole=whole, steps=[("", whole)])
    steps = [(name, step) for name, step in whole.steps if not (isinstance(step, str) or step is None)]
    return Candidate(number=number, whole=whole, steps=steps)


def scored(candidates: Sequence[Candidate], fold: Fold, scoring: Scoring) -> tuple[list[FoldScore], int]:
    """Fit all of them on a fold.

    Returns
    -------
    Result of each, and the number of fits of steps.
    """
    tree = _Tree(scoring, fold)
    tree.go(list(candidates), fold, 0)
    return tree.found, tree.num_fits


class _Tree:
    def __init__(self, scoring: Scoring, raw: Fold) -> None:
        self._scoring = scoring
        self._raw = None if scoring.of_last_step else _copied(raw)  # steps may write into theirs
        self.found: list[FoldScore] = []
        self.num_fits = 0

    def go(self, members: list[Candidate], fold: Fold, depth: int) -> None:
        """Fit what follows of candidates whose steps before are fitted and were the same."""
        groups: dict[Any, list[Candidate]] = {}
        for each in members:
            groups.setdefault((len(each.steps) == depth + 1, each.keys[depth]), []).append(each)
        for number, ((is_last, _), group) in enumerate(groups.items(), 1):
            # Steps may write into what they are given: those that share it get copies, the last one the thing itself.
            own = fold if number == len(groups) else _copied(fold)
            if number == len(groups):
                del fold
            self.num_fits += 1
            try:
                if is_last:
                    self._score(group, own)
                    continue
                own = self._through(group, own, depth)
            except Exception as error:
                why = f"{type(error).__name__}: {error}"[:2000]
                trace = traceback.format_exc()[-4000:]
                self.found += [FoldScore(candidate=each.number, error=f"{why}\n{trace}") for each in group]
                continue
            self.go(group, own, depth + 1)
            del own

    def _through(self, group: list[Candidate], fold: Fold, depth: int) -> Fold:
        """Return the fold after a step, which all of the group have then, fitted."""
        name, step = group[0].steps[depth]
        began = time.perf_counter()
        if hasattr(step, "fit_transform"):
            X = step.fit_transform(fold.X, fold.y)
        else:
            X = step.fit(fold.X, fold.y).transform(fold.X)
        fitted = time.perf_counter()
        X_test = step.transform(fold.X_test)
        for each in group:
            each.whole.steps = [(n, step if n == name else s) for n, s in each.whole.steps]
        ended = time.perf_counter()
        return replace(
            fold, X=X, X_test=X_test, fit_s=fold.fit_s + fitted - began, score_s=fold.score_s + ended - fitted
        )

    def _score(self, group: list[Candidate], fold: Fold) -> None:
        scoring, last = self._scoring, group[0].steps[-1][1]
        began = time.perf_counter()
        fit(last, fold.X, fold.y, fold.weight)
        fitted = time.perf_counter()
        model = last if self._raw is None else group[0].whole
        rows = fold.X_test if self._raw is None else copied(self._raw.X_test)  # its steps may write into them
        scores = scoring(model, rows, fold.y_test, fold.weight_test)
        ended = time.perf_counter()
        for each in group:
            self.found.append(
                FoldScore(
                    candidate=each.number,
                    scores=scores,
                    fit_s=fold.fit_s + fitted - began,
                    score_s=fold.score_s + ended - fitted,
                )
            )


def _copied(fold: Fold) -> Fold:
    names = ("X", "y", "X_test", "y_test", "weight", "weight_test")
    return replace(fold, **{name: copied(getattr(fold, name)) for name in names})


def copied(value: Any) -> Any:
    """Return a copy of rows, in memory of its own; None of none."""
    if value is None:
        return None
    return value.copy() if hasattr(value, "copy") else np.array(value)
