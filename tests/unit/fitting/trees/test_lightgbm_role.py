"""What one rank makes of its parts with LightGBM: the estimator that is made of all rows at once."""

from __future__ import annotations

import pickle
from functools import partial
from pathlib import Path

import lightgbm
import numpy as np
import pytest
from alone import BEGUN, FRAME, LABELS, PLAIN, PLAN, QUERIES, RANKED, SIGNAL, WEIGHTS, Alone, X, cut, grow, scored
from sklearn.base import clone

from dask_train.fitting.trees import lightgbm_params, spool
from dask_train.fitting.trees.spool import spooled


def test_a_classifier_of_lightgbm():
    settings = {"n_estimators": 9, "num_leaves": 7, "verbose": -1, "class_weight": "balanced"}
    labels = np.array(["low", "middle", "high"])[LABELS]
    codes = np.searchsorted(["high", "low", "middle"], labels)
    rows = cut(X, codes, WEIGHTS)
    stop = {"callbacks": [lightgbm.early_stopping(3, verbose=False)], "eval_metric": "multi_error"}
    session = Alone(rows, valid_0=rows)
    evals = (scored("valid_0", PLAN),)
    found = grow(session, lightgbm.LGBMClassifier(**settings), PLAN, evals=evals, settings=stop)
    wanted = lightgbm.LGBMClassifier(**settings, n_jobs=1, force_col_wise=True, deterministic=True)
    again = {"callbacks": [lightgbm.early_stopping(3, verbose=False)], "eval_metric": "multi_error"}
    wanted.fit(FRAME, codes, sample_weight=WEIGHTS, eval_X=FRAME, eval_y=codes, eval_sample_weight=[WEIGHTS], **again)
    np.testing.assert_allclose(found.estimator.predict_proba(FRAME), wanted.predict_proba(FRAME), rtol=1e-6)
    other = FRAME.assign(kind=FRAME["kind"].cat.set_categories(list("xyz")))
    np.testing.assert_allclose(found.estimator.predict_proba(other), found.estimator.predict_proba(FRAME))
    for metric, values in wanted.evals_result_["valid_0"].items():
        np.testing.assert_allclose(found.history[f"val_{metric}"], values, rtol=1e-6)
    assert found.estimator.best_iteration_ == wanted.best_iteration_
    pickle.loads(pickle.dumps(found.estimator)).predict(FRAME[:3])


def test_many_classes_are_taken_for_no_regression():
    found = grow(Alone(cut(X[:, :3], np.arange(600) % 30)), lightgbm.LGBMClassifier(n_estimators=1, verbose=-1), PLAIN)
    assert found.estimator.classes_.tolist() == list(range(30))


def test_rows_of_lightgbm_that_are_streamed_make_the_trees_of_rows_in_memory(monkeypatch, tmp_path):
    monkeypatch.setattr(spool, "spooled", partial(spooled, page_bytes=150 * X[0].nbytes))
    made = lightgbm.LGBMClassifier(n_estimators=4, num_leaves=7, subsample_for_bin=200, verbose=-1)
    rows, evals = cut(X, LABELS, WEIGHTS), (scored("valid_0", PLAN),)
    left = []

    def files(_):
        left.extend(line for line in Path("/proc/self/maps").read_text().splitlines() if str(tmp_path) in line)

    found, wanted = (
        grow(
            Alone(rows, folder, valid_0=rows),
            made,
            PLAN,
            evals=evals,
            streamed=streamed,
            settings={"callbacks": [files]},
        )
        for folder, streamed in ((tmp_path, True), (None, False))
    )
    assert found.estimator.booster_.model_to_string() == wanted.estimator.booster_.model_to_string()
    assert found.history == wanted.history
    assert left == [], "the file of rows goes when their bins are made"


def test_many_rows_are_summed_row_by_row(monkeypatch):
    made = lightgbm.LGBMRegressor(n_estimators=3, num_leaves=7, verbose=-1)
    for lowest, way in ((len(SIGNAL), "row"), (len(SIGNAL) + 1, "col")):
        monkeypatch.setattr(lightgbm_params, "ROW_WISE_ROWS", lowest)
        found = grow(Alone(cut(X[:, :3], SIGNAL)), made, PLAIN).estimator.booster_.model_to_string()
        assert f"[force_{way}_wise: 1]" in found


def test_a_ranker_of_lightgbm_has_whole_queries():
    settings = {"n_estimators": 4, "num_leaves": 7, "verbose": -1, "min_child_samples": 5}
    rows = cut(X[:, :3], LABELS, QUERIES)
    found = grow(Alone(rows, valid_0=rows), lightgbm.LGBMRanker(**settings), RANKED, evals=(scored("valid_0", RANKED),))
    sizes = np.unique(QUERIES, return_counts=True)[1]
    wanted = lightgbm.LGBMRanker(**settings, n_jobs=1, force_col_wise=True, deterministic=True)
    wanted.fit(X[:, :3], LABELS, group=sizes, eval_X=X[:, :3], eval_y=LABELS, eval_group=[sizes])
    np.testing.assert_allclose(found.estimator.predict(X[:, :3]), wanted.predict(X[:, :3]), rtol=1e-6)
    np.testing.assert_allclose(found.history["val_ndcg_3"], wanted.evals_result_["valid_0"]["ndcg@3"])


def test_lightgbm_stops_early_by_its_parameter_and_callbacks_act_before_a_round(tmp_path):
    def slower():
        return lightgbm.reset_parameter(learning_rate=lambda number: 0.9 * 0.8**number)

    rows, others = cut(X[:300, :3], SIGNAL[:300]), cut(X[300:, :3], SIGNAL[::-1][300:])
    made = lightgbm.LGBMRegressor(n_estimators=30, num_leaves=7, verbose=-1, early_stopping_round=3)
    evals, settings = (scored("valid_0", PLAIN),), {"callbacks": [slower()]}
    found = grow(Alone(rows, valid_0=others), made, PLAIN, evals=evals, settings=settings)
    wanted = clone(made).set_params(force_col_wise=True)
    x, y = X[300:600, :3], SIGNAL[::-1][300:600]
    wanted.fit(X[:300, :3], SIGNAL[:300], eval_X=x, eval_y=y, callbacks=[slower()])
    assert found.num_rounds == len(wanted.evals_result_["valid_0"]["l2"]) < 30
    np.testing.assert_allclose(found.history["val_l2"], wanted.evals_result_["valid_0"]["l2"], rtol=1e-6)
    assert found.estimator.best_iteration_ == wanted.best_iteration_
    assert found.estimator.best_score_["valid_0"]["l2"] == pytest.approx(wanted.best_score_["valid_0"]["l2"])
    np.testing.assert_allclose(found.estimator.predict(x), wanted.predict(x), rtol=1e-6)
    kept = {"evals": evals, "keeps": True}
    for _ in range(2):  # the second one has nothing left to do
        settings = {"callbacks": [slower()]}
        again = grow(Alone(rows, tmp_path, valid_0=others), made, PLAIN, settings=settings, **kept)
        assert again.estimator.best_iteration_ == wanted.best_iteration_
        np.testing.assert_allclose(again.estimator.predict(x), wanted.predict(x), rtol=1e-6)


def test_a_fit_of_lightgbm_that_was_not_stopped_early_goes_on_to_more_rounds(tmp_path):
    rows = cut(X[:, :3], SIGNAL)
    for rounds in (4, 7):
        made = lightgbm.LGBMRegressor(n_estimators=rounds, num_leaves=7, verbose=-1, early_stopping_round=50)
        found = grow(Alone(rows, tmp_path, valid_0=rows), made, PLAIN, evals=(scored("valid_0", PLAIN),), keeps=True)
        assert (found.num_rounds, found.estimator.best_iteration_) == (rounds, rounds)


def test_the_best_round_of_lightgbm_is_unknown_where_a_fit_that_goes_on_is_stopped(tmp_path):
    rows, evals = cut(X[:, :3], SIGNAL), (scored("valid_0", PLAIN),)
    for rounds, stop_after, best in ((4, None, 4), (9, 2, 0)):
        made = lightgbm.LGBMRegressor(n_estimators=rounds, num_leaves=7, verbose=-1, early_stopping_round=50)
        session = Alone(rows, tmp_path, valid_0=rows, stop_after=stop_after)
        found = grow(session, made, PLAIN, evals=evals, keeps=True)
        assert found.estimator.booster_.best_iteration == best, "else it predicts with the trees of fewer rounds"
    assert found.num_rounds == found.estimator.booster_.num_trees() == 6


def test_lightgbm_tells_that_it_goes_on_with_other_draws(tmp_path):
    made = lightgbm.LGBMRegressor(n_estimators=6, num_leaves=7, verbose=-1, subsample=0.5, subsample_freq=1)
    rows = cut(X[:, :3], SIGNAL)
    grow(Alone(rows, tmp_path, stop_after=3), made, PLAIN, keeps=True)
    session = Alone(rows, tmp_path)
    assert grow(session, made, PLAIN, keeps=True).num_rounds == 6
    assert [text.partition(":")[0] for text in session.notices] == ["subsample=0.5"]


@pytest.mark.parametrize("rounds_before", [0, 3])
def test_a_fit_of_lightgbm_that_goes_on_sums_scores_in_the_order_of_its_rounds(tmp_path, monkeypatch, rounds_before):
    margins = np.random.default_rng(1).normal(size=len(SIGNAL))
    rows, given = cut(X[:, :3], SIGNAL, margins), []
    start = None
    if rounds_before:
        start = lightgbm.LGBMRegressor(n_estimators=rounds_before, verbose=-1).fit(X[:, :3], SIGNAL).booster_
    set_init_score = lightgbm.Dataset.set_init_score
    monkeypatch.setattr(
        lightgbm.Dataset, "set_init_score", lambda rows, score: (given.append(score), set_init_score(rows, score))[1]
    )
    for number in (4, 9):
        made = lightgbm.LGBMRegressor(n_estimators=number, num_leaves=7, verbose=-1)
        found = grow(Alone(rows, tmp_path), made, BEGUN, keeps=True, start=start).estimator.booster_
    wanted = given[0]  # margins, and the model of before
    for number in range(rounds_before, rounds_before + 4):
        wanted = wanted + found.predict(X[:, :3], raw_score=True, start_iteration=number, num_iteration=1)
    assert given[1].tobytes() == wanted.tobytes()
    assert found.current_iteration() == rounds_before + 9


def test_rows_begin_with_all_rounds_of_a_model_that_was_stopped_early():
    first = lightgbm.LGBMRegressor(n_estimators=5, num_leaves=7, verbose=-1).fit(X[:, :3], SIGNAL).booster_
    settings = {"n_estimators": 4, "num_leaves": 7, "verbose": -1}
    wanted = grow(Alone(cut(X[:, :3], SIGNAL)), lightgbm.LGBMRegressor(**settings), PLAIN, start=first)
    first.best_iteration = 2
    found = grow(Alone(cut(X[:, :3], SIGNAL)), lightgbm.LGBMRegressor(**settings), PLAIN, start=first)
    assert found.estimator.booster_.num_trees() == 9
    assert found.estimator.booster_.model_to_string() == wanted.estimator.booster_.model_to_string()


def test_lightgbm_goes_on_with_a_model():
    rows = cut(X[:, :3], SIGNAL)
    first = lightgbm.LGBMRegressor(n_estimators=3, num_leaves=7, verbose=-1).fit(X[:, :3], SIGNAL)
    settings = {"n_estimators": 4, "num_leaves": 7, "verbose": -1}
    found = grow(Alone(rows), lightgbm.LGBMRegressor(**settings), PLAIN, start=first.booster_)
    wanted = lightgbm.LGBMRegressor(**settings, force_col_wise=True, deterministic=True)
    wanted.fit(X[:, :3], SIGNAL, init_model=first)
    assert found.estimator.booster_.num_trees() == 7
    np.testing.assert_allclose(found.estimator.predict(X[:, :3]), wanted.predict(X[:, :3]), rtol=1e-6)


def test_lightgbm_takes_one_target_a_row():
    with pytest.raises(ValueError, match=r"Targets have the shape \(2,\) a row"):
        grow(Alone(cut(X[:, :3], np.stack([SIGNAL, SIGNAL], axis=1))), lightgbm.LGBMRegressor(), PLAIN)
