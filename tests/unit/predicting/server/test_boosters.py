"""Predictions and scores of boosted trees, block by block."""

from __future__ import annotations

import dask.array as da
import dask.dataframe as dd
import lightgbm
import numpy as np
import pandas as pd
import pytest
import xgboost
from sklearn.metrics import log_loss, roc_auc_score

import dask_train as dt

X = np.random.default_rng(0).normal(size=(200, 3))
Y = (X[:, 0] > X[:, 1]).astype(int)
ROWS, LABELS = da.from_array(X, chunks=(90, 3)), da.from_array(Y, chunks=90)


@pytest.mark.parametrize(
    "model", [xgboost.XGBClassifier(n_estimators=3, n_jobs=1), lightgbm.LGBMClassifier(n_estimators=3, verbose=-1)]
)
def test_estimators_and_their_boosters(model):
    model.fit(X, Y)
    found = dt.predict(model, ROWS, method="predict_proba")
    assert (found.chunks[0], found.shape) == ((90, 90, 20), (200, 2))
    np.testing.assert_allclose(found.compute(scheduler="sync"), model.predict_proba(X), rtol=1e-6)
    booster = getattr(model, "booster_", None) or model.get_booster()
    alone = dt.predict(booster, ROWS).compute(scheduler="sync")
    np.testing.assert_allclose(alone, model.predict_proba(X)[:, 1], rtol=1e-6)
    assert dt.evaluate(model, ROWS, LABELS)["accuracy"] == model.score(X, Y)


def test_a_booster_is_scored_by_functions_of_all_rows():
    model = lightgbm.LGBMClassifier(n_estimators=3, verbose=-1).fit(X, Y)
    booster = xgboost.XGBClassifier(n_estimators=3, n_jobs=1).fit(X, Y).get_booster()
    chances, weights = booster.inplace_predict(X), np.arange(200.0)
    found = dt.evaluate(booster, ROWS, LABELS, metrics=[roc_auc_score, log_loss], verbose=0)
    wanted = {"roc_auc_score": roc_auc_score(Y, chances), "log_loss": log_loss(Y, chances)}
    assert found == pytest.approx(wanted, rel=1e-12)
    weighed = {"sample_weight": da.from_array(weights, chunks=90), "metrics": {"loss": log_loss}}
    assert dt.evaluate(booster, ROWS, LABELS, **weighed)["loss"] == pytest.approx(
        log_loss(Y, chances, sample_weight=weights)
    )
    frame = dd.from_pandas(pd.DataFrame(X, columns=list("abc")).assign(y=Y, w=weights), npartitions=3)
    frame = dd.concat([frame.partitions[:1], frame[frame["y"] > 2], frame.partitions[1:]])  # one is empty
    named = {"features": list("abc"), "label": "y", "sample_weight": "w", "metrics": [roc_auc_score]}
    wanted = roc_auc_score(Y, model.booster_.predict(X), sample_weight=weights)
    assert dt.evaluate(model.booster_, frame, **named)["roc_auc_score"] == pytest.approx(wanted)


def test_what_can_not_score_a_booster():
    booster = xgboost.XGBClassifier(n_estimators=1, n_jobs=1).fit(X, Y).get_booster()
    with pytest.raises(TypeError, match=r"needs metrics= as well for a model of type Booster"):
        dt.evaluate(booster, ROWS, LABELS)
    with pytest.raises(TypeError, match="pass a list of functions"):
        dt.evaluate(booster, ROWS, LABELS, metrics="auc")
    with pytest.raises(TypeError, match="metrics has 'auc'; pass functions"):
        dt.evaluate(booster, ROWS, LABELS, metrics=["auc"])
    with pytest.raises(ValueError, match="Two metrics are called log_loss, log_loss"):
        dt.evaluate(booster, ROWS, LABELS, metrics=[log_loss, log_loss])
    with pytest.raises(ValueError, match="'plain' takes no sample_weight="):
        dt.evaluate(booster, ROWS, LABELS, sample_weight=LABELS, metrics={"plain": lambda y, found: 0.0})
    with pytest.raises(ValueError, match="There are no rows to evaluate on"):
        dt.evaluate(booster, ROWS[:0], LABELS[:0], metrics=[log_loss])


def test_frames_and_the_best_round():
    frame = pd.DataFrame(X, columns=list("abc"))
    booster = xgboost.train({"nthread": 1}, xgboost.DMatrix(frame, Y), 5)
    table = dd.from_pandas(frame, npartitions=2)
    np.testing.assert_allclose(dt.predict(booster, table).compute(scheduler="sync"), booster.inplace_predict(frame))
    booster.set_attr(best_iteration="1")
    found = dt.predict(booster, table).compute(scheduler="sync")
    np.testing.assert_allclose(found, booster.inplace_predict(frame, iteration_range=(0, 2)))


def test_linear_boosters_which_predict_of_a_matrix_alone():
    frame = pd.DataFrame(X, columns=list("abc"))
    model = xgboost.XGBRegressor(booster="gblinear", n_estimators=3, n_jobs=1, updater="coord_descent").fit(frame, Y)
    booster, table = model.get_booster(), dd.from_pandas(frame, npartitions=2)
    booster.set_attr(best_iteration="1")  # it has no rounds to choose from
    wanted = booster.predict(xgboost.DMatrix(frame))
    for each, rows in ((model, table), (booster, table), (booster, ROWS)):
        np.testing.assert_allclose(dt.predict(each, rows).compute(scheduler="sync"), wanted, rtol=1e-6)
    with pytest.raises(ValueError, match="feature_names mismatch"):
        dt.predict(booster, table[["b", "a", "c"]]).compute(scheduler="sync")
    assert dt.evaluate(booster, ROWS, LABELS, metrics={"mean": lambda _, found: found.mean()}, verbose=0) == {
        "mean": pytest.approx(wanted.mean())
    }
