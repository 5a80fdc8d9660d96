"""What XGBoost's own tests of its Dask interface look at, of ``dt.fit``: each fit is that of one process."""

from __future__ import annotations

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import xgboost
from sklearn.metrics import roc_auc_score

import dask_train as dt

pytestmark = pytest.mark.slow

RANDOM = np.random.default_rng(0)
# Few different values: then the sketch of each feature is exact, however the rows are shared out.
X = RANDOM.normal(size=(600, 4)).round(1).astype("f4")
Y = (X @ [1, -1, 0.5, 0] + X[:, 3] ** 2).round(2)
POSITIVE = (Y > 0.5).astype(int)
CLASSES = np.digitize(Y, [0, 1.5])
MARGIN = (Y / 2).round(1)
WEIGHTS = RANDOM.integers(0, 4, 600).astype("f4")
FRAME = pd.DataFrame(X, columns=list("abcd"), index=RANDOM.permutation(600))
SIGN = np.where(X < -1, np.float32(-999), X)


def on_dask(array, chunks=(250, 0, 50, 300)):
    return da.from_array(array, chunks=(chunks, *array.shape[1:]))


def squares(y_true, y_pred):
    return y_pred - y_true, np.ones_like(y_pred)


def off(y_true, y_pred):
    return float(np.abs(y_true - y_pred).max())


# Of each case: the estimator, features, targets, chunks of their rows, and what else is passed.
ONE, FIRST = (600,), (600, 0, 0)
CASES = {
    "one partition, two workers": (xgboost.XGBRegressor(), X, Y, ONE, {}),
    "rows in the first partition only": (xgboost.XGBClassifier(), X, CLASSES, FIRST, {}),
    "a class a worker": (xgboost.XGBClassifier(), *(each[np.argsort(POSITIVE)] for each in (X, POSITIVE)), None, {}),
    "weights of 0": (xgboost.XGBRegressor(), X, Y, None, {"sample_weight": WEIGHTS}),
    "margins": (xgboost.XGBRegressor(), X, Y, None, {"base_margin": MARGIN}),
    "margins of classes": (xgboost.XGBClassifier(), X, CLASSES, None, {"base_margin": np.stack([MARGIN] * 3, 1)}),
    "an objective": (xgboost.XGBRegressor(objective=squares, base_score=0.5), X, Y, None, {}),
    "a metric": (xgboost.XGBRegressor(eval_metric=off), X, Y, None, {"eval_set": True}),
    "early stopping": (xgboost.XGBRegressor(early_stopping_rounds=2, eta=1.0), X, Y, None, {"eval_set": True}),
    "another missing value": (xgboost.XGBRegressor(missing=-999.0), SIGN, Y, None, {}),
    "several targets": (xgboost.XGBRegressor(), X, np.stack([Y, MARGIN], 1), None, {}),
    "trees of several targets": (
        xgboost.XGBRegressor(multi_strategy="multi_output_tree"), X, np.stack([Y, MARGIN], 1), None, {},
    ),
    "types of features": (
        xgboost.XGBRegressor(feature_types=["q", "q", "c", "q"], enable_categorical=True),
        np.column_stack([X[:, :2], CLASSES, X[:, 3]]), Y, None, {},
    ),
    "a forest": (xgboost.XGBRFRegressor(subsample=1.0, colsample_bynode=1.0), X, Y, None, {}),
    "constraints": (
        xgboost.XGBRegressor(monotone_constraints=(1, -1, 0, 0), interaction_constraints="[[0, 1], [2, 3]]"),
        X, Y, None, {},
    ),
    "trees without a split": (xgboost.XGBRegressor(gamma=1e9), X, Y, None, {}),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_fits_are_those_of_one_process(client, case):
    estimator, x, y, chunks, more = CASES[case]
    spread = {} if chunks is None else {"chunks": chunks}
    settings = {"n_estimators": 4, "max_depth": 3, "n_jobs": 1}
    found, wanted = (type(estimator)(**{**estimator.get_params(), **settings}) for _ in range(2))
    rows, targets = on_dask(x, **spread), on_dask(y, **spread)
    lazy = {name: on_dask(each, **spread) for name, each in more.items() if name != "eval_set"}
    if "eval_set" in more:
        more, lazy = {"eval_set": [(x[:200], y[:200])], "verbose": False}, {"eval_set": [(rows[:200], targets[:200])]}
    dt.fit(found, rows, targets, **lazy, workers=2)
    wanted.fit(x, y, **more)
    np.testing.assert_allclose(found.predict(x), wanted.predict(x), rtol=1e-4, atol=1e-5)
    if "eval_set" in more:
        if wanted.early_stopping_rounds:
            assert found.best_iteration == wanted.best_iteration
        for name, values in wanted.evals_result()["validation_0"].items():
            np.testing.assert_allclose(found.evals_result()["validation_0"][name], values, rtol=1e-4, err_msg=name)
    for method in ("predict", "predict_proba"):
        if hasattr(found, method):
            predicted = dt.predict(found, rows, method=method)
            np.testing.assert_allclose(predicted.compute(), getattr(found, method)(x), rtol=1e-5, atol=1e-6)
    assert found.get_booster().num_features() == 4


def test_columns_of_two_frames_go_together_by_their_index_and_keep_names_and_types(client):
    x, y = FRAME.sort_index(), pd.Series(Y, FRAME.index).sort_index()
    x = x.assign(kind=pd.Categorical(np.where(x["a"] > 0, "up", "down")))
    found, wanted = (xgboost.XGBRegressor(n_estimators=4, enable_categorical=True) for _ in range(2))
    dt.fit(found, dd.from_pandas(x, npartitions=3), dd.from_pandas(y, npartitions=3), workers=2)
    wanted.fit(x, y)
    np.testing.assert_allclose(found.predict(x), wanted.predict(x), rtol=1e-4, atol=1e-5)
    for name in ("feature_names", "feature_types"):
        assert getattr(found.get_booster(), name) == getattr(wanted.get_booster(), name)
    assert found.feature_names_in_.tolist() == list(x.columns)


def test_predictions_of_every_kind_have_the_shapes_of_one_process(client):
    model = xgboost.XGBClassifier(n_estimators=3, max_depth=2)
    rows = on_dask(X)
    dt.fit(model, rows, on_dask(CLASSES), workers=2)
    booster = model.get_booster()

    def of(**kind):
        return lambda block: xgboost.Booster.predict(booster, xgboost.DMatrix(block), **kind)

    leaves = dt.predict(model, rows, method="apply")
    np.testing.assert_array_equal(leaves.compute(), model.apply(X))
    for kind in ({"output_margin": True}, {"pred_leaf": True}, {"pred_contribs": True}, {"pred_interactions": True}):
        found, wanted = dt.predict(of(**kind), rows), of(**kind)(X)
        assert found.shape[1:] == wanted.shape[1:]
        np.testing.assert_allclose(found.compute(), wanted, rtol=1e-5, atol=1e-5, err_msg=str(kind))


def test_two_fits_at_a_time_and_scores_of_a_worker_with_one_class(client, in_threads):
    order = np.argsort(POSITIVE)
    x, y = X[order], POSITIVE[order]
    rows, labels = on_dask(x), on_dask(y)
    settings = {"n_estimators": 3, "max_depth": 3, "eval_metric": ["auc", "logloss"]}

    def fit(seed):
        model = xgboost.XGBClassifier(**settings, random_state=seed)
        return dt.fit(model, rows, labels, eval_set=[(rows, labels)], workers=2)

    one, other = in_threads(lambda: fit(0), lambda: fit(1), timeout_s=120)
    alone = xgboost.XGBClassifier(**settings).fit(x, y, eval_set=[(x, y)], verbose=False)
    for result in (one, other):
        np.testing.assert_allclose(
            result.history["logloss"], alone.evals_result()["validation_0"]["logloss"], rtol=1e-4
        )
        assert any("auc" in notice for notice in result.notices), "a mean over workers, and it says so"
        exact = dt.evaluate(result.model.get_booster(), rows, labels, metrics=[roc_auc_score])["roc_auc_score"]
        assert exact == pytest.approx(roc_auc_score(y, alone.predict_proba(x)[:, 1]), rel=1e-4)


def test_callbacks_and_settings_of_the_library_are_used_where_it_trains(client):
    slower = xgboost.callback.LearningRateScheduler(lambda number: 0.5 / (number + 1))
    settings = {"n_estimators": 4, "max_depth": 3, "callbacks": [slower]}
    found, wanted = (xgboost.XGBRegressor(**settings) for _ in range(2))
    with xgboost.config_context(verbosity=0):
        result = dt.fit(found, on_dask(X), on_dask(Y), workers=2)
    assert not result.notices
    np.testing.assert_allclose(found.predict(X), wanted.fit(X, Y).predict(X), rtol=1e-4, atol=1e-5)
    early = xgboost.XGBRegressor(n_estimators=3, early_stopping_rounds=2)
    with pytest.raises(ValueError, match="at least 1 validation dataset"):
        dt.fit(early, on_dask(X), on_dask(Y), workers=2)
    weighed = xgboost.XGBRegressor(n_estimators=8, colsample_bynode=0.5, feature_weights=[0.0, 0.0, 1.0, 1.0])
    dt.fit(weighed, on_dask(X), on_dask(Y), workers=2)
    assert weighed.feature_importances_[:2].tolist() == [0.0, 0.0]
