"""What a search over a grid returns."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import lightgbm
import numpy as np
import pandas as pd
import pytest
from dask import dataframe as dd

import dask_train as dt
from dask_train.errors import DaskTrainError
from dask_train.searching.estimators.prefixes import FoldScore
from dask_train.searching.estimators.result import GridResult
from dask_train.searching.estimators.table import results_table

PARAMS = [{"a": 1.0}, {"a": 2.0, "b": "x"}, {"a": 3.0}]


def found(
    *scorers: str, refit: str | None = None, index: int | None = None, model: Any = None, schema: Any = None
) -> GridResult:
    """Of three candidates on two folds; the second is the best one by ``r2``, the third by ``mae``."""
    values = {"r2": [0.1, 0.9, 0.5], "mae": [-3.0, -2.0, -1.0]}
    scores = {
        (candidate, fold): FoldScore(candidate=candidate, scores={name: values[name][candidate] for name in scorers})
        for candidate in range(3)
        for fold in range(2)
    }
    work = SimpleNamespace(table=results_table(PARAMS, scores, 2, scorers), num_fits=8, refit_s=1.5)
    work.best_index, work.best = index, None if model is None else (index, 0.5, model)
    work.scorer_names, work.num_splits, work.refit, work.schema = list(scorers), 2, refit, schema
    return GridResult(work)  # type: ignore[arg-type]


def test_the_best_is_the_one_that_was_fitted_on_all_rows():
    it = found("r2", "mae", refit="mae", index=2, model="fitted")
    assert (it.best_index, it.best_params, it.best_value) == (2, {"a": 3.0}, -1.0)
    assert it.history["best_value"][-1] == -1.0
    assert it.plot().axes[0].get_xlabel() == "candidate"
    assert it.best_estimator == it.best_model == "fitted"


def test_of_one_score_the_best_is_known_though_it_was_not_fitted():
    it = found("r2")
    assert (it.best_index, it.best_params, it.best_value) == (1, {"a": 2.0, "b": "x"}, 0.9)
    with pytest.raises(DaskTrainError, match="The best candidate was not fitted on all rows"):
        _ = it.best_estimator


def test_without_a_score_on_each_fold_none_is_the_best_one():
    work = SimpleNamespace(num_fits=1, refit_s=0.0, best_index=None, best=None, scorer_names=["r2"], num_splits=2)
    scores = {(number, fold): FoldScore(candidate=number, error="ended") for number in range(3) for fold in range(2)}
    work.table, work.refit, work.schema = results_table(PARAMS, scores, 2, ["r2"]), "r2", None
    it = GridResult(work)  # type: ignore[arg-type]
    for name in ("best_index", "best_params", "best_value"):
        with pytest.raises(DaskTrainError, match=r"none has a score on each fold yet.*Let the search end, or resume"):
            getattr(it, name)
    assert "best value" not in repr(it)
    with pytest.raises(AttributeError, match="has no attribute 'best_estimator_': use 'best_estimator'"):
        _ = it.best_estimator_


def test_of_several_scores_none_is_chosen_for_the_user():
    it = found("r2", "mae")
    for name in ("best_index", "best_params", "best_value"):
        with pytest.raises(DaskTrainError, match=r"there are several scores.*refit= one of r2, mae"):
            getattr(it, name)
    assert "best value" not in it._repr_html_()
    assert repr(it).endswith("8 fits of steps>")


def test_parameters_are_the_callers_own():
    it = found("r2")
    it.best_params["a"] = 7.0
    assert it.best_params["a"] == 2.0


def test_it_is_shown_best_first_and_as_a_frame():
    it = found("r2", "mae", refit="mae", index=2, model="fitted")
    (table,) = it._card().tables
    assert [row[2] for row in table.rows] == ["3", "2", "1"]
    assert table.columns == ("mae", "r2", "a", "b")
    assert it.trials_dataframe()["rank_test_r2"].tolist() == [3, 1, 2]
    assert repr(it) == "<GridResult: 3 candidates on 2 folds, 8 fits of steps; best value -1>"


def test_the_best_one_knows_the_categories_that_it_was_fitted_with(tmp_path: Any):
    """LightGBM alone takes an unknown category for a missing one, silently."""
    codes = np.arange(60) % 3
    frame = pd.DataFrame({"kind": pd.Categorical.from_codes(codes, ["u", "v", "w"]), "a": 0.0})
    best = lightgbm.LGBMRegressor(n_estimators=3, min_child_samples=1, verbose=-1).fit(frame, codes)
    it = found("r2", model=best, schema=dt.FrameSchema.of(frame))
    it.save(tmp_path / "best")
    later = frame[["a", "kind"]].assign(kind=pd.Categorical(frame["kind"], ["w", "u", "v"]))
    for model in (it.best_estimator, tmp_path / "best"):
        predicted = dt.predict(model, dd.from_pandas(later, npartitions=2)).compute(scheduler="threads")
        np.testing.assert_array_equal(predicted, best.predict(frame))
        with pytest.raises(ValueError, match="Column 'kind' of x has 'x', and the model is fitted with the categories"):
            dt.predict(model, later.assign(kind=pd.Categorical(["u", "x"] * 30))).compute(scheduler="threads")
