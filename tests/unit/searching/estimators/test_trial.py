"""An estimator of a trial: fitted and scored round by round on folds, kept where it is the best."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.ensemble import GradientBoostingRegressor
from sklearn.linear_model import LogisticRegression, Ridge, SGDClassifier, SGDRegressor
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from dask_train.errors import ClosedError, StalledError
from dask_train.searching.estimators.rows import FoldRows
from dask_train.searching.estimators.scoring import scoring_of
from dask_train.searching.estimators.trial import EstimatorTask, check_rounds, fitting
from dask_train.searching.worker import EndTrial

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(20, 2)), RNG.normal(size=20)
SPLITS = tuple(SimpleNamespace(train=np.delete(np.arange(20), test), test=test) for test in np.split(np.arange(20), 2))


class Table:
    """Rows by their numbers: a copy each time."""

    def take(self, numbers: np.ndarray) -> FoldRows:
        return FoldRows(X[numbers], Y[numbers], None)

    def all(self) -> FoldRows:
        return self.take(np.arange(len(X)))

    def fold(self, split: Any) -> Any:
        return nullcontext((self.take(split.train), self.take(split.test)))


class Session:
    """Keeps reports; the client says these words, in turn."""

    def __init__(self, *words: Any) -> None:
        self.reports: list[dict[str, Any]] = []
        self.words = list(words)

    def report(self, **scores: Any) -> None:
        self.reports.append(scores)

    def receive(self, timeout_s: float) -> Any:
        assert timeout_s == 0
        word = self.words.pop(0) if self.words else None
        if word is None:
            raise StalledError("Nothing was said.")
        if isinstance(word, Exception):
            raise word
        return word

    def should_stop(self) -> bool:
        return False


class Counting(BaseEstimator):
    """Counts its rounds, and predicts the first feature."""

    def partial_fit(self, x: Any, y: Any) -> Counting:
        self.rounds_ = getattr(self, "rounds_", 0) + 1
        return self

    fit = partial_fit

    def predict(self, x: Any) -> Any:
        return x[:, 0]


def in_place() -> Pipeline:
    """Its first step writes into the rows that it is given."""
    return Pipeline([("scale", StandardScaler(copy=False)), ("model", Counting())])


def done(task: EstimatorTask, session: Session | None = None, to_beat: float | None = None, mode: str = "max") -> Any:
    request: Any = SimpleNamespace(number=3, metric="score", mode=mode, to_beat=to_beat)
    tables: Any = {"data": Table(), "validation": Table()}
    return task(request, session or Session(), tables)


def task(estimator: Any, scoring: Any, *, splits: Any = SPLITS, rounds: int = 1) -> EstimatorTask:
    made = scoring_of(estimator, scoring, has_weights=False)
    return EstimatorTask(estimator=estimator, scoring=made, splits=splits, rounds=rounds)


@pytest.mark.parametrize("splits", [SPLITS, None])
def test_steps_that_write_into_rows_spoil_no_later_round(splits):
    """As ``StandardScaler(copy=False)`` in a pipeline does: each round is scored on the rows as they are."""
    session = Session()
    done(task(in_place(), lambda model, x, y: float(model.predict(x).mean()), splits=splits, rounds=3), session)
    scores = [report["score"] for report in session.reports]
    assert scores[1:] == scores[:1] * 2


def test_the_best_round_counts_and_is_fitted_again_on_all_rows():
    values = iter([1.0, 1.0, 5.0, 5.0, 3.0, 3.0])
    session = Session()
    found = done(task(Counting(), lambda model, x, y: next(values), rounds=3), session)
    assert (found.number, found.value, found.epoch) == (3, 5.0, 1)
    assert [report["epoch"] for report in session.reports] == [0, 1, 2]
    assert found.parts.rounds_ == 2, "for as many rounds as were best"


@pytest.mark.parametrize(("to_beat", "is_kept"), [(None, True), (0.5, True), (1.5, False)])
def test_a_model_is_kept_where_it_beats_all_others(to_beat, is_kept):
    found = done(task(Counting(), lambda model, x, y: 1.0), to_beat=to_beat)
    assert (found.parts is not None) is is_kept
    assert found.value == 1.0


def test_of_a_validation_the_very_model_is_kept_as_it_was_then():
    values = iter([5.0, 3.0])
    found = done(task(Counting(), lambda model, x, y: next(values), splits=None, rounds=2))
    assert (found.epoch, found.parts.rounds_) == (0, 1)


def test_a_score_that_is_no_number_fails_the_trial():
    session = Session()
    with pytest.raises(FloatingPointError, match=r"score is nan after round 1\."):
        done(task(Counting(), lambda model, x, y: float("nan")), session)
    (report,) = session.reports
    assert np.isnan(report["score"]), "a pruner sees it"


@pytest.mark.parametrize(("word", "rounds"), [(EndTrial(number=3), 1), (EndTrial(number=2), 3), (ClosedError("x"), 1)])
def test_it_ends_when_it_is_pruned_and_not_for_another(word, rounds):
    session = Session(word)
    found = done(task(Counting(), lambda model, x, y: 1.0, rounds=3), session)
    assert len(session.reports) == rounds
    if isinstance(word, ClosedError):
        assert found is None, "it is begun once more"
    else:
        assert (found.parts is None) is (rounds == 1), "where it is over it is not fitted on all rows"


@pytest.mark.parametrize(
    ("estimator", "rounds", "says"),
    [
        (Ridge(), 0, "rounds is 0; it is a whole number of at least 1"),
        (Ridge(), True, "rounds is True"),
        (Ridge(), 2, "rounds=2, and Ridge can't be fitted in rounds"),
        (GradientBoostingRegressor(), 2, "is not one that adds estimators with warm_start=True"),
        (GradientBoostingRegressor(n_estimators=3, warm_start=True), 4, "rounds=4 of n_estimators=3"),
    ],
)
def test_what_can_not_be_fitted_in_rounds_is_refused(estimator, rounds, says):
    with pytest.raises(ValueError, match=says):
        check_rounds(estimator, rounds)
    check_rounds(LogisticRegression(), 1)
    check_rounds(Pipeline([("scale", StandardScaler()), ("model", SGDRegressor())]), 5)


@pytest.mark.parametrize(("total", "rounds", "sizes"), [(6, 3, [2, 4, 6]), (5, 3, [2, 4, 5]), (3, 3, [1, 2, 3])])
def test_a_warm_start_adds_its_part_each_round(total, rounds, sizes):
    model = GradientBoostingRegressor(n_estimators=total, warm_start=True, random_state=0)
    seen = [len(each.estimators_) for each in fitting(model, FoldRows(X, Y, None), rounds)]
    assert seen == sizes
    whole = GradientBoostingRegressor(n_estimators=total, random_state=0).fit(X, Y)
    np.testing.assert_allclose(model.predict(X), whole.predict(X))


def test_classes_are_known_from_the_first_round_on():
    labels = np.array(["a", "b"] * 10)
    steps = fitting(SGDClassifier(random_state=0), FoldRows(X, labels, np.ones(20)), 2)
    assert next(steps).classes_.tolist() == ["a", "b"]
    assert next(steps).t_ > 20
