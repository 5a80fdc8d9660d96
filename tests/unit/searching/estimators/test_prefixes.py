"""Candidates on one fold: each distinct beginning of a pipeline is fitted once, and none spoils another."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.linear_model import Ridge
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from dask_train.searching.estimators.prefixes import Fold, candidate_of, scored
from dask_train.searching.estimators.scoring import scoring_of

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(40, 3)), RNG.normal(size=40)


def fold() -> Fold:
    return Fold(X[:30].copy(), Y[:30].copy(), X[30:].copy(), Y[30:].copy())


class Shift(TransformerMixin, BaseEstimator):
    """Writes into what it is given, and counts its fits."""

    fits: ClassVar[list[float]] = []

    def __init__(self, by: float = 0.0, fails: bool = False) -> None:
        self.by, self.fails = by, fails

    def fit(self, X: Any, y: Any = None) -> Shift:  # noqa: N803
        Shift.fits.append(self.by)
        if self.fails:
            raise ValueError("it can't")
        return self

    def transform(self, X: Any) -> Any:  # noqa: N803
        X += self.by
        return X


@pytest.fixture(autouse=True)
def no_fits(monkeypatch):
    monkeypatch.setattr(Shift, "fits", [])


PIPELINE = Pipeline([("shift", Shift()), ("scale", StandardScaler()), ("model", Ridge())])


def run(points: list[dict[str, Any]], scoring: Any = "r2", estimator: Any = PIPELINE) -> tuple[dict[int, Any], int]:
    candidates = [candidate_of(number, estimator, params) for number, params in enumerate(points)]
    found, num_fits = scored(candidates, fold(), scoring_of(estimator, scoring, has_weights=False))
    return {score.candidate: score for score in found}, num_fits


def alone(params: dict[str, Any]) -> float:
    """As scikit-learn has it."""
    from sklearn.base import clone

    model, rows = clone(PIPELINE).set_params(**params), fold()
    return float(model.fit(rows.X, rows.y).score(rows.X_test, rows.y_test))


@pytest.mark.parametrize("scoring", ["r2", lambda model, x, y: float(model.score(x, y))])
def test_scores_are_those_of_each_alone_and_beginnings_are_fitted_once(scoring):
    points = [{"shift__by": by, "model__alpha": alpha} for by in (1.0, 2.0) for alpha in (0.1, 10.0, 100.0)]
    found, num_fits = run(points, scoring)
    assert [found[number].scores["score"] for number in range(6)] == pytest.approx([alone(each) for each in points])
    assert num_fits == 2 + 2 + 6
    assert Shift.fits[:2] == [1.0, 2.0]


def test_a_step_that_fails_fails_those_that_share_it_alone():
    found, _ = run([{"shift__fails": True, "model__alpha": 1.0}, {"shift__fails": True}, {"shift__fails": False}])
    assert [bool(found[number].error) for number in range(3)] == [True, True, False]
    assert found[0].error.startswith("ValueError: it can't\nTraceback")
    assert found[2].scores["score"] == pytest.approx(alone({}))


def test_steps_that_do_nothing_are_left_out():
    found, num_fits = run([{"shift": "passthrough"}, {"scale": None, "shift": "passthrough"}])
    assert num_fits == 3
    assert found[0].scores["score"] == pytest.approx(alone({"shift": "passthrough"}))
    assert found[1].scores["score"] == pytest.approx(alone({"shift": "passthrough", "scale": None}))


def test_what_is_no_pipeline_is_one_step():
    found, num_fits = run([{"alpha": 1.0}, {"alpha": 2.0}, {"alpha": 1.0}], estimator=Ridge())
    assert num_fits == 2, "equal ones are fitted once"
    assert found[0].scores == found[2].scores
    assert candidate_of(0, Ridge(), {}).steps[0][0] == ""


def test_a_parameter_that_there_is_not_is_refused():
    with pytest.raises(ValueError, match="Invalid parameter"):
        candidate_of(0, PIPELINE, {"model__no_such": 1})


def test_what_is_given_stays_as_it_was():
    shared = Ridge(alpha=5.0)
    candidate = candidate_of(0, PIPELINE, {"model": shared})
    assert candidate.whole is not PIPELINE
    assert candidate.steps[-1][1] is not shared
    assert PIPELINE.named_steps["model"].alpha == 1.0


@pytest.mark.parametrize(
    ("one", "other"), [(Ridge(1.0), Ridge(2.0)), (Ridge(1), Ridge(1.0)), (Ridge(), StandardScaler())]
)
def test_steps_that_differ_have_other_keys(one, other):
    assert candidate_of(0, one, {}).keys != candidate_of(0, other, {}).keys


@pytest.mark.parametrize("make", [Ridge, lambda: Ridge(np.arange(3)), lambda: PIPELINE])
def test_steps_that_are_equal_have_the_same(make):
    assert candidate_of(0, make(), {}).keys == candidate_of(0, make(), {}).keys
