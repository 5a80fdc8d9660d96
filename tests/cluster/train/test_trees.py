"""Boosted trees, fitted where the rows are: the trees of one process, however often a worker is lost."""

from __future__ import annotations

import os
import pickle
import signal

import dask.array as da
import dask.dataframe as dd
import lightgbm
import numpy as np
import pandas as pd
import pytest
import xgboost

import dask_train as dt

RANDOM = np.random.default_rng(0)
# Few different values: then the sketch of each feature is exact, however the rows are shared out.
X = RANDOM.normal(size=(2000, 5)).round(1).astype(np.float32)
X[RANDOM.random(X.shape) < 0.1] = np.nan
SIGNAL = np.nan_to_num(X[:, 0]) + np.nan_to_num(X[:, 1]) ** 2
LABELS = np.digitize(SIGNAL + RANDOM.normal(size=2000), [0.5, 1.5])
WEIGHTS = RANDOM.integers(1, 4, 2000).astype(np.float32)
CHUNKS = (700, 0, 300, 1000)


def on_dask(array):
    return da.from_array(array, chunks=(CHUNKS, *array.shape[1:]))


def trees(estimator):
    return estimator.get_booster().get_dump()


def splits(estimator):
    """What the trees look at; sums of other orders differ in the last digits of leaves."""
    found = estimator.get_booster().trees_to_dataframe()
    return found[["Tree", "Node", "Feature", "Split", "Yes", "No", "Missing"]]


def largest_error(y_true, y_score, sample_weight=None):
    return float(np.abs((y_true[:, None] == np.arange(3)) - y_score).max())


def test_a_classifier_is_that_of_one_process(client):
    settings = {
        "n_estimators": 8,
        "max_depth": 4,
        "early_stopping_rounds": 4,
        "eval_metric": ["mlogloss", largest_error],
    }
    found = xgboost.XGBClassifier(**settings)
    rows, labels, weights = on_dask(X), on_dask(LABELS), on_dask(WEIGHTS)
    result = dt.fit(
        found,
        rows,
        labels,
        sample_weight=weights,
        eval_set=[(rows, labels), (rows[:900], labels[:900])],
        sample_weight_eval_set=[weights, None],
        stop="val_mlogloss < 0.0001",
        workers=2,
    )
    wanted = xgboost.XGBClassifier(**settings).fit(
        X,
        LABELS,
        sample_weight=WEIGHTS,
        eval_set=[(X, LABELS), (X[:900], LABELS[:900])],
        sample_weight_eval_set=[WEIGHTS, None],
        verbose=False,
    )
    pd.testing.assert_frame_equal(splits(found), splits(wanted))
    np.testing.assert_allclose(found.predict_proba(X), wanted.predict_proba(X), atol=1e-6)
    assert result.model is found
    assert found.n_classes_ == 3
    assert found.best_iteration == wanted.best_iteration == result.best_epoch
    theirs = wanted.evals_result()
    for name, metrics in found.evals_result().items():
        for metric, values in metrics.items():
            np.testing.assert_allclose(values, theirs[name][metric], rtol=1e-5, err_msg=f"{name} {metric}")
    assert result.history["mlogloss"] == found.evals_result()["validation_0"]["mlogloss"]
    assert result.history["val_largest_error"] == found.evals_result()["validation_1"]["largest_error"]
    assert [score["round"] for score in result.scores] == list(range(1, len(result.epoch) + 1))
    assert (result.ledger.trained, result.ledger.repeated) == (2000, 0)
    assert (pickle.loads(pickle.dumps(found)).predict(X) == wanted.predict(X)).all()


def on_disk(dask_worker):
    """What lies there of runs."""
    return [name for name in os.listdir(dask_worker.local_directory) if name.startswith("fit-")]


def test_rows_that_are_streamed_make_the_trees_of_one_process(client):
    settings = {"n_estimators": 6, "max_depth": 4, "eval_metric": ["mlogloss", largest_error]}
    found = xgboost.XGBClassifier(**settings)
    rows, labels, weights = on_dask(X), on_dask(LABELS), on_dask(WEIGHTS)
    result = dt.fit(
        found,
        rows,
        labels,
        sample_weight=weights,
        validation_data=(rows[:600], labels[:600]),  # of one partition: one of both has no rows
        workers=2,
        streaming=1,
    )
    wanted = xgboost.XGBClassifier(**settings)
    wanted.fit(X, LABELS, sample_weight=WEIGHTS, eval_set=[(X[:600], LABELS[:600])], verbose=False)
    pd.testing.assert_frame_equal(splits(found), splits(wanted))
    np.testing.assert_allclose(found.predict_proba(X), wanted.predict_proba(X), atol=1e-6)
    for metric, scores in wanted.evals_result()["validation_0"].items():
        np.testing.assert_allclose(result.history[f"val_{metric}"], scores, rtol=1e-5)
    assert (result.ledger.read, result.ledger.trained, result.ledger.dropped) == (2000, 2000, 0)
    assert not any(client.run(on_disk).values())


@pytest.mark.parametrize("streaming", [False, 1])
def test_lightgbm_of_ranks_is_that_of_one_process(client, streaming):
    # Sorted rows: the first worker's mean has no logarithm. One row a leaf: LightGBM only guesses counts among ranks.
    order = np.argsort(LABELS, kind="stable")
    x, y, weights = X[order], LABELS[order], WEIGHTS[order]
    settings = {"n_estimators": 5, "num_leaves": 7, "verbose": -1, "objective": "poisson", "min_child_samples": 1}
    found, rows, labels = lightgbm.LGBMRegressor(**settings), on_dask(x), on_dask(y)
    scored = {}
    result = dt.fit(
        found,
        rows,
        labels,
        sample_weight=on_dask(weights),
        eval_set=[(rows[:900], labels[:900])],
        eval_metric="l1",
        callbacks=[lightgbm.record_evaluation(scored)],
        workers=2,
        streaming=streaming,
    )
    wanted = lightgbm.LGBMRegressor(**settings, force_col_wise=True, deterministic=True)
    wanted.fit(x, y, sample_weight=weights, eval_X=x[:900], eval_y=y[:900], eval_metric="l1")
    np.testing.assert_allclose(found.predict(X), wanted.predict(X), rtol=1e-5)
    np.testing.assert_allclose(result.history["val_l1"], wanted.evals_result_["valid_0"]["l1"], rtol=1e-5)
    assert scored["valid_0"]["poisson"] == result.history["val_poisson"]
    assert (result.ledger.trained, result.ledger.repeated) == (2000, 0)
    assert not any(client.run(on_disk).values())


def test_queries_are_not_cut_and_categories_are_alike(client):
    ranges = ((0, 700), (9, 300), (18, 1000))
    queries = np.concatenate([np.sort(RANDOM.integers(low, low + 9, size)) for low, size in ranges])
    queries[650:1100] = 99  # lies in three partitions
    order = np.argsort(queries, kind="stable")
    settings = {"n_estimators": 4, "max_depth": 3, "lambdarank_pair_method": "topk", "eval_metric": "ndcg@5"}
    found = xgboost.XGBRanker(**settings)
    rows, labels, numbers = on_dask(X), on_dask(LABELS), on_dask(queries)
    result = dt.fit(found, rows, labels, qid=numbers, eval_set=[(rows, labels)], eval_qid=[numbers], workers=2)
    wanted, of_all = xgboost.XGBRanker(**settings), (X[order], LABELS[order])
    wanted.fit(*of_all, qid=queries[order], eval_set=[of_all], eval_qid=[queries[order]])
    np.testing.assert_allclose(found.predict(X), wanted.predict(X), atol=1e-5)
    np.testing.assert_allclose(result.history["ndcg_5"], wanted.evals_result()["validation_0"]["ndcg@5"], rtol=1e-5)

    frame = pd.DataFrame(X[:, :2], columns=["a", "b"])
    frame["kind"] = pd.Categorical.from_codes(RANDOM.integers(-1, 4, 2000), list("zyxw"))
    frame["y"] = SIGNAL + frame["kind"].cat.codes
    table, names = dd.from_pandas(frame, npartitions=3), ["a", "kind", "b"]
    found = xgboost.XGBRegressor(n_estimators=4, enable_categorical=True)
    dt.fit(found, table, features=names, label="y", validation_data=table, workers=2)
    wanted = xgboost.XGBRegressor(n_estimators=4, enable_categorical=True).fit(frame[names], frame["y"])
    np.testing.assert_allclose(found.predict(frame[names]), wanted.predict(frame[names]), rtol=1e-5, atol=1e-5)
    other = frame[names].assign(kind=frame["kind"].cat.set_categories(list("wxyz")))
    np.testing.assert_array_equal(found.predict(other), found.predict(frame[names]), "other codes, the same categories")


def test_queries_of_lightgbm_are_not_cut_its_categories_are_alike_and_its_trees_come_again(client):
    queries = np.sort(RANDOM.integers(0, 40, 2000))
    queries[650:1100] = 99  # lies in three partitions
    order, settings = np.argsort(queries, kind="stable"), {"n_estimators": 4, "num_leaves": 7, "verbose": -1}
    rows, labels, numbers = on_dask(X), on_dask(LABELS), on_dask(queries)
    texts = []
    for _ in range(2):
        found = lightgbm.LGBMRanker(**settings, min_child_samples=1)
        result = dt.fit(found, rows, labels, qid=numbers, eval_set=[(rows, labels)], eval_qid=[numbers], workers=2)
        texts.append(found.booster_.model_to_string().partition("parameters:")[0])  # which have the run's ports
    assert texts[0] == texts[1]
    wanted = lightgbm.LGBMRanker(**settings, min_child_samples=1, force_col_wise=True, deterministic=True)
    x, y, sizes = X[order], LABELS[order], np.unique(queries, return_counts=True)[1]
    wanted.fit(x, y, group=sizes, eval_X=x, eval_y=y, eval_group=[sizes], eval_names=["training"])
    np.testing.assert_allclose(found.predict(X), wanted.predict(X), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(result.history["ndcg_5"], wanted.evals_result_["training"]["ndcg@5"], rtol=1e-5)

    frame = pd.DataFrame(X[:, :2], columns=["a", "b"])
    kinds = np.where(np.arange(2000) < 1000, RANDOM.integers(-1, 2, 2000), RANDOM.integers(2, 4, 2000))
    frame["kind"] = pd.Categorical.from_codes(kinds, list("zyxw"))  # no worker sees all of them
    frame["y"] = SIGNAL + kinds
    table, names = dd.from_pandas(frame, npartitions=4), ["a", "kind", "b"]
    found, stops = lightgbm.LGBMRegressor(**settings), lightgbm.early_stopping(2, verbose=False)
    scored = table.repartition(npartitions=3)  # the very object would be rows to train on, which stop nothing
    dt.fit(found, table, features=names, label="y", validation_data=scored, callbacks=[stops], workers=2)
    wanted = lightgbm.LGBMRegressor(**settings, force_col_wise=True).fit(frame[names], frame["y"])
    np.testing.assert_allclose(found.predict(frame[names]), wanted.predict(frame[names]), rtol=1e-5, atol=1e-5)
    assert stops.best_iter == [3], "the callback that was passed"
    other = frame[names].assign(kind=frame["kind"].cat.set_categories(list("wxyz")))
    np.testing.assert_array_equal(found.predict(other), found.predict(frame[names]), "other codes, the same categories")


@pytest.mark.parametrize("wait", [True, False])
def test_what_a_library_refuses_comes_as_from_its_own_fit(client, wait):
    rows, labels = on_dask(X), on_dask(np.where(np.arange(2000) > 1990, -1.0, 1.0))  # the last partition alone is wrong

    def fitted(*given, wait):
        run = dt.fit(*given, workers=2, wait=wait)
        return run if wait else run.result()

    refused = {
        lightgbm.basic.LightGBMError: lightgbm.LGBMRegressor(objective="poisson", verbose=-1),
        xgboost.core.XGBoostError: xgboost.XGBRegressor(objective="count:poisson"),
        ValueError: xgboost.XGBClassifier(),
    }
    for error, estimator in refused.items():
        with pytest.raises(error, match=r"negative|Invalid classes inferred") as raised:
            fitted(estimator, rows, labels, wait=wait)
        assert type(raised.value) is error
        assert raised.value.__notes__[0].startswith("Traceback of worker ")
    with pytest.raises(ValueError, match="The labels are -1, 1, and XGBoost numbers classes 0, 1 and so on"):
        dt.fit(xgboost.XGBClassifier(), X, np.where(SIGNAL > 0, 1, -1), workers=2)
    metric = xgboost.XGBClassifier(eval_metric=lambda *_: 1 / 0)
    with pytest.raises(dt.RoleFailedError, match=r"worker \d raised ZeroDivisionError") as failed:
        dt.fit(metric, rows, on_dask(LABELS), validation_data=(X, LABELS), workers=2)
    assert isinstance(failed.value.__cause__, ZeroDivisionError)


def written(folder):
    """Whether a checkpoint is there as a whole: its file is there, and empty, before it is written."""
    try:
        return any(path.stat().st_size for path in folder.glob("*.json"))
    except FileNotFoundError:  # it is removed when a later one is there as a whole
        return True


@pytest.mark.slow
def test_a_killed_worker_of_lightgbm_and_a_fit_that_goes_on_make_the_same_trees(client, tmp_path, until, wait_for):
    settings = {"n_estimators": 400, "num_leaves": 7, "verbose": -1}  # so many that the stop comes before their end
    rows, labels = on_dask(X), on_dask(LABELS)
    whole = lightgbm.LGBMRegressor(**settings)
    dt.fit(whole, rows, labels, workers=2)

    found = lightgbm.LGBMRegressor(**settings)
    often = dt.Checkpoint(tmp_path / "killed", every_steps=5, every_s=None)
    run = dt.fit(found, rows, labels, workers=2, checkpoint=often, wait=False)
    worker = until(run, 12)["worker", 1]
    wait_for(lambda: written(tmp_path / "killed"), "a checkpoint, which is written while rounds go on")
    os.kill(worker["pid"], signal.SIGKILL)
    result = run.result()
    assert len(result.attempts) == 2
    np.testing.assert_allclose(found.predict(X), whole.predict(X), rtol=1e-6, atol=1e-9)
    again = [score["round"] for score in result.scores if score["attempt"] == 1]
    assert again[0] > 5, "it went on"

    kept = tmp_path / "kept"
    stopped = lightgbm.LGBMRegressor(**settings)
    result = dt.fit(stopped, rows, labels, workers=2, checkpoint=kept, stop="round >= 20")
    assert 20 <= len(result.epoch) == stopped.booster_.num_trees() < 400
    dt.fit(stopped, rows, labels, workers=2, checkpoint=kept, resume=True)
    np.testing.assert_allclose(stopped.predict(X), whole.predict(X), rtol=1e-6, atol=1e-9)


@pytest.mark.slow
def test_a_killed_worker_and_a_fit_that_goes_on_make_the_same_trees(client, tmp_path, until, wait_for):
    settings = {"max_depth": 4, "subsample": 0.7, "colsample_bytree": 0.6, "max_bin": 64}
    rows, labels = on_dask(X), on_dask(LABELS)
    whole = xgboost.XGBRegressor(n_estimators=500, **settings)  # so many that the stop comes before their end
    dt.fit(whole, rows, labels, workers=2)

    found = xgboost.XGBRegressor(n_estimators=500, **settings)
    often = dt.Checkpoint(tmp_path / "killed", every_steps=5, every_s=None)
    run = dt.fit(found, rows, labels, workers=2, checkpoint=often, wait=False)
    worker = until(run, 12)["worker", 1]
    wait_for(lambda: written(tmp_path / "killed"), "a checkpoint, which is written while rounds go on")
    os.kill(worker["pid"], signal.SIGKILL)
    result = run.result()
    assert len(result.attempts) == 2
    assert trees(found) == trees(whole)
    again = [score["round"] for score in result.scores if score["attempt"] == 1]
    assert again[0] > 5, "it went on"

    kept = tmp_path / "kept"
    stopped = xgboost.XGBRegressor(n_estimators=500, **settings)
    result = dt.fit(stopped, rows, labels, workers=2, checkpoint=kept, stop="round >= 20")
    assert 20 <= len(result.epoch) < 500
    assert stopped.get_booster().num_boosted_rounds() == len(result.epoch)
    dt.fit(stopped, rows, labels, workers=2, checkpoint=kept, resume=True)
    assert trees(stopped) == trees(whole)
    with pytest.raises(ValueError, match=r"is of another fit: max_depth='4' there and '3' here"):
        dt.fit(xgboost.XGBRegressor(**{**settings, "max_depth": 3}), rows, labels, checkpoint=kept, resume=True)


@pytest.mark.slow
def test_a_worker_that_is_killed_leaves_no_rows_on_disk(client, tmp_path, until):
    whole, found = (xgboost.XGBRegressor(n_estimators=100, max_depth=4) for _ in range(2))
    rows, labels = on_dask(X), on_dask(LABELS)
    dt.fit(whole, rows, labels, workers=2, streaming=2)
    often = dt.Checkpoint(tmp_path, every_steps=5, every_s=None)
    run = dt.fit(found, rows, labels, workers=2, streaming=2, checkpoint=often, wait=False)
    os.kill(until(run, 12)["worker", 1]["pid"], signal.SIGKILL)
    result = run.result()
    assert len(result.attempts) == 2
    assert trees(found) == trees(whole)
    assert (result.ledger.trained, result.ledger.dropped) == (2000, 0)
    assert not any(client.run(on_disk).values())
