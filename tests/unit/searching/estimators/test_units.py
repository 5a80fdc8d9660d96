"""What the roles of a search over a grid are sent."""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from dask_train.searching.estimators.rows import FoldRows
from dask_train.searching.estimators.scoring import scoring_of
from dask_train.searching.estimators.units import Candidates, Refit, texts_of

RNG = np.random.default_rng(0)
X, Y, WEIGHT = RNG.normal(size=(20, 2)), RNG.normal(size=20), np.linspace(0.1, 1, 20)
ORDER: Any = SimpleNamespace(number=5)


class Table:
    """Its rows, of which those of a fold are lent for a while."""

    is_lent = False

    def all(self) -> FoldRows:
        return FoldRows(X, Y, WEIGHT)

    @contextmanager
    def fold(self, split: int) -> Any:
        self.is_lent = True
        yield FoldRows(X[:split], Y[:split], WEIGHT[:split]), FoldRows(X[split:], Y[split:], WEIGHT[split:])
        self.is_lent = False


class Warns(Ridge):
    """Warns of its user, and of itself."""

    def fit(self, *args: Any, **more: Any) -> Any:
        for kind in (UserWarning, UserWarning, DeprecationWarning):
            warnings.warn("it is odd", kind, stacklevel=2)
        return super().fit(*args, **more)


def candidates(estimator: Any, **params: Any) -> Any:
    table = Table()
    unit = Candidates(
        estimator=estimator,
        params={3: params, 8: {**params, "alpha": 7.0}},
        fold=0,
        split=12,  # type: ignore[arg-type]
        scoring=scoring_of(estimator, "r2", has_weights=False),
    )
    done = unit(ORDER, None, {"data": table})  # type: ignore[arg-type,dict-item]
    assert not table.is_lent
    return done


def test_candidates_are_fitted_on_a_fold_and_told_by_their_numbers():
    done = candidates(Ridge(), alpha=2.0)
    scores, num_fits = done.parts
    assert (done.number, num_fits, done.value, done.warnings) == (5, 2, None, [])
    wanted = [Ridge(alpha).fit(X[:12], Y[:12], WEIGHT[:12]).score(X[12:], Y[12:]) for alpha in (2.0, 7.0)]
    assert [(each.candidate, each.scores["score"]) for each in scores] == [
        (3, pytest.approx(wanted[0])),
        (8, pytest.approx(wanted[1])),
    ]


def test_what_a_user_would_see_of_warnings_is_told_once():
    assert candidates(Warns()).warnings == ["UserWarning: it is odd"]


def test_the_best_one_is_fitted_on_all_rows_with_their_weights():
    table: Any = Table()
    given = Ridge(3.0)
    done = Refit(estimator=given, params={"alpha": 2.0})(ORDER, None, {"data": table})  # type: ignore[arg-type]
    np.testing.assert_allclose(done.parts.coef_, Ridge(2.0).fit(X, Y, WEIGHT).coef_)
    assert not hasattr(given, "coef_"), "what was sent is as it was"


def test_so_many_warnings_are_told_and_no_more():
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for number in range(50):
            warnings.warn(f"number {number}", stacklevel=1)
    assert len(texts_of(told)) == 20
