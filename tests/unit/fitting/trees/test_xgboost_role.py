"""What one rank makes of its parts with XGBoost: the estimator that is made of all rows at once."""

from __future__ import annotations

import pickle
from functools import partial

import numpy as np
import pandas as pd
import pytest
import xgboost
from alone import FRAME, LABELS, PLAIN, PLAN, QUERIES, RANKED, SIGNAL, WEIGHTS, Alone, X, cut, described, grow, scored
from sklearn.base import clone

from dask_train.data.columns import SourceColumn
from dask_train.fitting.trees import spool
from dask_train.fitting.trees.spool import spooled
from dask_train.fitting.trees.task import EvalSet


def mean_error(y_true, y_score, sample_weight=None):
    return float(np.abs(y_true - y_score.argmax(axis=1)).mean())


def test_a_classifier_of_xgboost():
    settings = {
        "n_estimators": 9,
        "max_depth": 3,
        "enable_categorical": True,
        "eval_metric": ["mlogloss", mean_error],
        "early_stopping_rounds": 3,
    }
    session = Alone(cut(X, LABELS, WEIGHTS), validation_0=cut(X, LABELS, WEIGHTS))
    found = grow(session, xgboost.XGBClassifier(**settings), PLAN, evals=(scored("validation_0", PLAN),))
    wanted = xgboost.XGBClassifier(**settings, n_jobs=1)
    wanted.fit(
        FRAME,
        LABELS,
        sample_weight=WEIGHTS,
        eval_set=[(FRAME, LABELS)],
        sample_weight_eval_set=[WEIGHTS],
        verbose=False,
    )
    np.testing.assert_allclose(found.estimator.predict_proba(FRAME), wanted.predict_proba(FRAME), atol=1e-6)
    assert found.estimator.n_classes_ == 3
    assert found.estimator.eval_metric[1] is mean_error
    np.testing.assert_allclose(
        found.history["val_mlogloss"], wanted.evals_result()["validation_0"]["mlogloss"], rtol=1e-6
    )
    np.testing.assert_allclose(found.history["val_mean_error"], wanted.evals_result()["validation_0"]["mean_error"])
    assert session.scores[-1]["val_mlogloss"] == found.history["val_mlogloss"][-1]
    pickle.loads(pickle.dumps(found))


def test_xgboost_trains_on_nothing_that_stands_in_for_rows(monkeypatch):
    with pytest.raises(ValueError, match="device='sycl' this estimator makes a DMatrix"):
        grow(Alone(cut(X[:, :3], LABELS)), xgboost.XGBClassifier(n_estimators=2, device="sycl"), PLAIN)

    def refuses(*_, **__):
        raise TypeError("no such rows")

    monkeypatch.setattr(xgboost.QuantileDMatrix, "__init__", refuses)
    with pytest.raises(ValueError, match="makes no QuantileDMatrix of these rows: no such rows"):
        grow(Alone(cut(X[:, :3], LABELS)), xgboost.XGBClassifier(n_estimators=2), PLAIN)


@pytest.mark.parametrize("more", [{}, {"subsample": 0.7, "colsample_bynode": 0.6}, {"grow_policy": "lossguide"}])
def test_rows_of_xgboost_that_are_streamed_make_the_trees_of_rows_in_memory(more, monkeypatch, tmp_path):
    monkeypatch.setattr(spool, "spooled", partial(spooled, page_bytes=150 * X[0].nbytes))
    settings = {"n_estimators": 6, "max_depth": 4, "enable_categorical": True, "n_jobs": 1, **more}
    rows, evals = cut(X, LABELS, WEIGHTS), (EvalSet(name="validation_0", prefix="", dataset="", columns=PLAN),)
    evals += (scored("validation_1", PLAN),)
    found, wanted = (
        grow(
            Alone(rows, None, validation_1=rows) if folder is None else Alone(rows, folder, validation_1=rows),
            xgboost.XGBClassifier(**settings),
            PLAN,
            evals=evals,
            streamed=folder is not None,
        )
        for folder in (tmp_path, None)
    )
    (found_trees, wanted_trees) = (
        each.estimator.get_booster().trees_to_dataframe()[["Feature", "Split", "Category", "Missing"]]
        for each in (found, wanted)
    )
    pd.testing.assert_frame_equal(found_trees, wanted_trees)
    np.testing.assert_allclose(found.estimator.predict_proba(FRAME), wanted.estimator.predict_proba(FRAME), atol=1e-6)
    assert set(found.history) == {"mlogloss", "val_mlogloss"}
    for name, values in found.history.items():
        np.testing.assert_allclose(values, wanted.history[name], rtol=1e-5)
    assert list(tmp_path.iterdir()) == [], "files of bins go with the matrix"


def test_a_ranker_of_xgboost_has_whole_queries():
    settings = {"n_estimators": 4, "max_depth": 3, "lambdarank_pair_method": "topk", "eval_metric": ["ndcg@5"]}
    rows = cut(X[:, :3], LABELS, QUERIES)
    found = grow(
        Alone(rows, validation_0=rows), xgboost.XGBRanker(**settings), RANKED, evals=(scored("validation_0", RANKED),)
    )
    wanted = xgboost.XGBRanker(**settings, n_jobs=1)
    wanted.fit(X[:, :3], LABELS, qid=QUERIES, eval_set=[(X[:, :3], LABELS)], eval_qid=[QUERIES])
    np.testing.assert_allclose(found.estimator.predict(X[:, :3]), wanted.predict(X[:, :3]), atol=1e-5)
    np.testing.assert_allclose(found.history["val_ndcg_5"], wanted.evals_result()["validation_0"]["ndcg@5"], rtol=1e-5)


def test_codes_of_xgboost_s_arrays_are_categories_where_it_is_told_so():
    codes = np.column_stack([X[:, 0], np.maximum(X[:, 3], 0) * 7 % 5])
    plan = described(2)
    made = xgboost.XGBRegressor(n_estimators=3, max_depth=3, feature_types=["q", "c"], enable_categorical=True)
    found = grow(Alone(cut(codes, SIGNAL)), made, plan).estimator
    wanted = clone(made).fit(codes, SIGNAL)
    assert "c" in wanted.get_booster().feature_types
    assert found.get_booster().get_dump() == wanted.get_booster().get_dump()


def test_a_checkpoint_is_of_the_categories_that_its_codes_mean(tmp_path):
    rows, made = cut(X, SIGNAL, WEIGHTS), xgboost.XGBRegressor(n_estimators=3, enable_categorical=True)
    grow(Alone(rows, tmp_path), made, PLAN, keeps=True)
    kinds = SourceColumn(name="kind", dtype=pd.CategoricalDtype(list("xyz")))
    other = PLAN.with_origins({0: (*PLAN.matrix.origins[:3], kinds)})
    with pytest.raises(ValueError, match=r"categories=.*\['z', 'y', 'x'\].* there and .*\['x', 'y', 'z'\].* here"):
        grow(Alone(rows, tmp_path), made, other, keeps=True)
