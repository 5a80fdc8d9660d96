"""What the role of a trial is sent: an estimator that Optuna's parameters made, fitted and scored on folds."""

from __future__ import annotations

import copy
import math
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import clone, is_classifier
from sklearn.pipeline import Pipeline

from dask_train.arguments import check_whole_number
from dask_train.errors import ClosedError, StalledError
from dask_train.searching.best_epoch import BestEpoch
from dask_train.searching.estimators.folds import Split
from dask_train.searching.estimators.prefixes import copied
from dask_train.searching.estimators.rows import FoldRows, RowTable
from dask_train.searching.estimators.scoring import Scoring
from dask_train.searching.estimators.units import texts_of
from dask_train.searching.estimators.weights import check_takes_weight, fit
from dask_train.searching.worker import EndTrial, TrialDone, TrialRequest

if TYPE_CHECKING:
    from dask_train.role.session import Session

_NO_END, _PRUNED, _STOPPED = "", "pruned", "stopped"


@dataclass(frozen=True, kw_only=True)
class EstimatorTask:
    """An estimator of a trial.

    Attributes
    ----------
    estimator
        Not fitted.
    scoring
        By one score.
    splits
        Folds of the data; None if it is trained on as a whole, and scored on the data set for validation.
    rounds
        How often it is scored, and the pruner asked; 1 for a single fit.
    """

    estimator: Any = field(repr=False)
    scoring: Scoring
    splits: tuple[Split, ...] | None = field(repr=False)
    rounds: int = 1

    def __call__(self, request: TrialRequest, session: Session, tables: Mapping[str, RowTable]) -> TrialDone | None:
        """Fit it, round by round on all folds; the best round counts. None if the run stops before it is fitted."""
        began, end = time.monotonic(), _NO_END
        best = BestEpoch(request)
        with warnings.catch_warnings(record=True) as caught_warnings:
            warnings.simplefilter("always")
            for number, (scores, fitted) in enumerate(self._by_round(tables)):
                score = float(np.mean(scores))
                session.report(trial=request.number, epoch=number, **{request.metric: score})
                if not math.isfinite(score):
                    raise FloatingPointError(f"{request.metric} is {score} after round {number + 1}.")
                best.epoch_ended(number, score, partial(self._kept, fitted))
                if number + 1 < self.rounds and (end := _end_of(request, session)) is not _NO_END:
                    break
            if self.splits is not None and best.beats_others and end is not _PRUNED:
                if end is _STOPPED:  # there is no time for all rows, so it is begun once more
                    return None
                best.parts = self._on_all_rows(tables["data"], (best.epoch or 0) + 1)
        return best.done(time.monotonic() - began, texts_of(caught_warnings))

    def _kept(self, fitted: Any) -> Any:
        """Return what is kept of an estimator of the best round: with folds nothing, as all rows are fitted then."""
        return copy.deepcopy(fitted) if self.splits is None else None

    def _by_round(self, tables: Mapping[str, RowTable]) -> Iterator[tuple[list[float], Any]]:
        """Scores on all folds after each round, and the estimator of the last fold."""
        if self.rounds == 1:  # a fold in memory at a time
            yield self._once(tables)
            return
        fits = []
        for number in range(1 if self.splits is None else len(self.splits)):
            # All folds are held at once: each has rows of its own, since steps may write to them.
            train, test = self._copied(tables, number)
            fits.append((fitting(clone(self.estimator), train, self.rounds), test))
        for _ in range(self.rounds):
            scores = []
            for steps, test in fits:
                fitted = next(steps)
                scores.append(self._score(fitted, test._replace(X=copied(test.X))))  # for the next round
            yield scores, fitted

    def _copied(self, tables: Mapping[str, RowTable], number: int) -> tuple[FoldRows, FoldRows]:
        if self.splits is None:
            return tables["data"].all(), tables["validation"].all()
        split = self.splits[number]
        return tables["data"].take(split.train), tables["data"].take(split.test)

    def _once(self, tables: Mapping[str, RowTable]) -> tuple[list[float], Any]:
        scores, fitted = [], None
        for number in range(1 if self.splits is None else len(self.splits)):
            with self._fold(tables, number) as (train, test):
                fitted = fit(clone(self.estimator), *train)
                scores.append(self._score(fitted, test))
        return scores, fitted

    def _fold(self, tables: Mapping[str, RowTable], number: int) -> AbstractContextManager[tuple[FoldRows, FoldRows]]:
        if self.splits is None:
            return nullcontext(self._copied(tables, number))
        return tables["data"].fold(self.splits[number])

    def _score(self, fitted: Any, rows: FoldRows) -> float:
        (score,) = self.scoring(fitted, *rows).values()
        return score

    def _on_all_rows(self, rows: RowTable, num_rounds: int) -> Any:
        """Return the estimator, fitted on all rows for as many rounds as were best."""
        if self.rounds == 1:
            return fit(clone(self.estimator), *rows.all())
        steps = fitting(clone(self.estimator), rows.all(), self.rounds)
        for _ in range(num_rounds):
            fitted = next(steps)
        return fitted


def check_rounds(estimator: Any, rounds: Any, *, has_weights: bool = False) -> None:
    """Check that an estimator can be fitted round by round.

    Raises
    ------
    ValueError
        It can't, also with the weights that there are; or it is no number of rounds.
    """
    check_whole_number("rounds", rounds, 1)
    last = _last(estimator)
    by_batch = rounds > 1 and hasattr(last, "partial_fit")
    if has_weights:
        check_takes_weight(last, "partial_fit" if by_batch else "fit")
    if rounds == 1 or by_batch:
        return
    params = last.get_params(deep=False)
    if "n_estimators" not in params or not params.get("warm_start"):
        raise ValueError(
            f"rounds={rounds}, and {type(last).__name__} can't be fitted in rounds: it has no partial_fit, and is not "
            "one that adds estimators with warm_start=True. Leave rounds out."
        )
    if params["n_estimators"] < rounds:
        raise ValueError(f"rounds={rounds} of n_estimators={params['n_estimators']}; pass no more rounds than that.")


def fitting(estimator: Any, rows: FoldRows, rounds: int) -> Iterator[Any]:
    """Yield the estimator, fitted a round further each time.

    Steps of a pipeline before the last one are fitted once. A round of ``partial_fit`` goes through all rows once; one
    of a warm start adds its part of ``n_estimators``.
    """
    last, (features, y, weight) = _last(estimator), rows
    for _, step in estimator.steps[:-1] if isinstance(estimator, Pipeline) else ():
        if step is None or isinstance(step, str):
            continue
        transforms = hasattr(step, "fit_transform")
        features = step.fit_transform(features, y) if transforms else step.fit(features, y).transform(features)
    total = None if hasattr(last, "partial_fit") else last.n_estimators
    more = {"classes": np.unique(y)} if is_classifier(last) else {}
    more |= {} if weight is None else {"sample_weight": weight}
    for number in range(1, rounds + 1):
        if total is None:
            last.partial_fit(features, *(() if y is None else (y,)), **more)
        else:
            fit(last.set_params(n_estimators=math.ceil(total * number / rounds)), features, y, weight)
        yield estimator


def _last(estimator: Any) -> Any:
    return estimator.steps[-1][1] if isinstance(estimator, Pipeline) else estimator


def _end_of(request: TrialRequest, session: Session) -> str:
    """Return who has the trial end: its client, which knows its end already, the run, or nobody."""
    while True:
        try:
            word = session.receive(timeout_s=0)
        except StalledError:
            return _STOPPED if session.should_stop() else _NO_END
        except ClosedError:
            return _STOPPED
        if isinstance(word, EndTrial) and word.number == request.number:
            return _PRUNED
