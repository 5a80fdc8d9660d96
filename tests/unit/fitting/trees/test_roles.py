"""What one rank does with its parts: the estimator that its library makes of all rows at once."""

from __future__ import annotations

import importlib.util
import pickle
from dataclasses import replace
from functools import partial
from pathlib import Path

import lightgbm
import numpy as np
import pandas as pd
import pytest
import xgboost
from sklearn.base import clone

from dask_train.fitting.trees import spool
from dask_train.fitting.trees.role import TreesRole
from dask_train.fitting.trees.spool import spooled
from dask_train.fitting.trees.task import EvalSet, RowsPlan, TreesTask

_spec = importlib.util.spec_from_file_location("alone", Path(__file__).with_name("alone.py"))
_alone = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_alone)
Alone, Rows = _alone.Alone, _alone.Rows

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(600, 4)).round(1)
X[RANDOM.random(X.shape) < 0.1] = np.nan
X[:, 3] = RANDOM.integers(-1, 3, 600)  # codes of categories
FRAME = pd.DataFrame(X[:, :3], columns=list("abc")).assign(
    kind=pd.Categorical.from_codes(X[:, 3].astype(int), list("zyx"))
)
SIGNAL = np.nan_to_num(X[:, 0]) + X[:, 3]
LABELS = np.digitize(SIGNAL, [0.0, 1.5])
WEIGHTS = RANDOM.integers(1, 4, 600).astype(float)
QUERIES = np.sort(RANDOM.integers(0, 30, 600))
PLAN = RowsPlan(
    places={"x": 0, "y": 1, "sample_weight": 2},
    num_features=4,
    names=("a", "b", "c", "kind"),
    categories=(None, None, None, list("zyx")),
)
PLAIN = RowsPlan(places={"x": 0, "y": 1}, num_features=3)
RANKED = RowsPlan(places={"x": 0, "y": 1, "qid": 2}, num_features=3)
BEGUN = RowsPlan(places={"x": 0, "y": 1, "margin": 2}, num_features=3)


def cut(*columns):
    """Columns in three parts."""
    return Rows(*(tuple(column[a:b] for column in columns) for a, b in ((0, 250), (250, 300), (300, 600))))


def grow(session, estimator, plan, **more):
    library = type(estimator).__module__.partition(".")[0]
    sent = pickle.loads(pickle.dumps(estimator))  # a role has its own
    return TreesRole(TreesTask(library=library, estimator=sent, plan=plan, **more))(session)


def scored(name, plan):
    return EvalSet(name=name, prefix="val_", dataset=name, plan=plan)


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
    rows, evals = cut(X, LABELS, WEIGHTS), (EvalSet(name="validation_0", prefix="", dataset="", plan=PLAN),)
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


def test_a_ranker_of_lightgbm_has_whole_queries():
    settings = {"n_estimators": 4, "num_leaves": 7, "verbose": -1, "min_child_samples": 5}
    rows = cut(X[:, :3], LABELS, QUERIES)
    found = grow(Alone(rows, valid_0=rows), lightgbm.LGBMRanker(**settings), RANKED, evals=(scored("valid_0", RANKED),))
    sizes = np.unique(QUERIES, return_counts=True)[1]
    wanted = lightgbm.LGBMRanker(**settings, n_jobs=1, force_col_wise=True, deterministic=True)
    wanted.fit(X[:, :3], LABELS, group=sizes, eval_X=X[:, :3], eval_y=LABELS, eval_group=[sizes])
    np.testing.assert_allclose(found.estimator.predict(X[:, :3]), wanted.predict(X[:, :3]), rtol=1e-6)
    np.testing.assert_allclose(found.history["val_ndcg_3"], wanted.evals_result_["valid_0"]["ndcg@3"])


@pytest.mark.parametrize(
    "estimator",
    [
        xgboost.XGBRegressor(n_estimators=20, max_depth=3, subsample=0.7, colsample_bytree=0.6),
        xgboost.XGBRegressor(n_estimators=20, max_depth=3, max_bin=64),
        lightgbm.LGBMRegressor(n_estimators=20, num_leaves=7, verbose=-1),
    ],
    ids=["xgboost", "streamed", "lightgbm"],
)
def test_what_goes_on_makes_the_trees_of_what_was_never_stopped(estimator, tmp_path, request, tmp_path_factory):
    rows = cut(X[:, :3], SIGNAL)
    streamed = "streamed" in request.node.name

    def fitted(estimator, folder=None, **more):
        session = Alone(rows, folder, every=4, validation_0=rows, **more)
        session.scratch = tmp_path_factory.mktemp("scratch")
        kept = {"keeps": folder is not None, "evals": (scored("validation_0", PLAIN),), "streamed": streamed}
        return session, grow(session, estimator, PLAIN, **kept)

    _, whole = fitted(estimator)
    session, stopped = fitted(estimator, tmp_path, stop_after=7)
    assert (session.saved, stopped.num_rounds, len(stopped.history.popitem()[1])) == ([4, 7], 7, 7)
    session, found = fitted(estimator, tmp_path)
    assert session.scores[0]["round"] == 8
    assert found.num_rounds == 20
    assert {name: len(values) for name, values in found.history.items()} == dict.fromkeys(whole.history, 20)
    exact = 0.0 if isinstance(estimator, xgboost.XGBModel) else 1e-9  # LightGBM adds its first bias in another order
    for name, values in whole.history.items():
        np.testing.assert_allclose(found.history[name], values, rtol=exact)
    np.testing.assert_allclose(found.estimator.predict(X[:, :3]), whole.estimator.predict(X[:, :3]), rtol=exact)
    session, again = fitted(estimator, tmp_path)
    assert (again.num_rounds, session.scores) == (20, [])
    with pytest.raises(ValueError, match=r"of another fit: learning_rate=.* there and '0.9' here"):
        fitted(type(estimator)(**{**estimator.get_params(), "learning_rate": 0.9}), tmp_path)


@pytest.mark.parametrize("classes", [0, 3])
@pytest.mark.parametrize("library", [xgboost, lightgbm], ids=["xgboost", "lightgbm"])
def test_rows_begin_with_the_scores_that_they_were_given(library, classes):
    x, y = X[:, :3], LABELS if classes else SIGNAL
    first = RANDOM.normal(size=(600, classes) if classes else 600)
    rows, evals = cut(x, y, first), (scored("validation_0", BEGUN),)
    if library is xgboost:
        made = (xgboost.XGBClassifier if classes else xgboost.XGBRegressor)(n_estimators=4, max_depth=3, n_jobs=1)
        names = {"base_margin": first, "eval_set": [(x, y)], "base_margin_eval_set": [first], "verbose": False}
    else:
        kind = lightgbm.LGBMClassifier if classes else lightgbm.LGBMRegressor
        made = kind(n_estimators=4, num_leaves=7, verbose=-1, force_col_wise=True)
        names = {"init_score": first, "eval_X": x, "eval_y": y, "eval_init_score": [first]}
    found = grow(Alone(rows, validation_0=rows), made, BEGUN, evals=evals)
    wanted = made.fit(x, y, **names)
    margin = {"output_margin": True} if library is xgboost else {"raw_score": True}
    np.testing.assert_allclose(found.estimator.predict(x, **margin), wanted.predict(x, **margin), rtol=1e-5, atol=1e-6)
    theirs = wanted.evals_result() if library is xgboost else wanted.evals_result_
    ((metric, values),) = next(iter(theirs.values())).items()
    np.testing.assert_allclose(found.history[f"val_{metric}"], values, rtol=1e-5)


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


def test_lightgbm_tells_that_it_goes_on_with_other_draws(tmp_path):
    made = lightgbm.LGBMRegressor(n_estimators=6, num_leaves=7, verbose=-1, subsample=0.5, subsample_freq=1)
    rows = cut(X[:, :3], SIGNAL)
    grow(Alone(rows, tmp_path, stop_after=3), made, PLAIN, keeps=True)
    session = Alone(rows, tmp_path)
    assert grow(session, made, PLAIN, keeps=True).num_rounds == 6
    assert [text.partition(":")[0] for text in session.notices] == ["subsample"]


def squared(y_true, y_pred):
    return y_pred - y_true, np.ones_like(y_true)


@pytest.mark.parametrize("library", [xgboost.XGBRegressor, lightgbm.LGBMRegressor])
def test_an_objective_of_ones_own(library):
    settings = {"n_estimators": 4, "objective": squared, "max_depth": 3}
    found = grow(Alone(cut(X[:, :3], SIGNAL)), library(**settings), PLAIN).estimator
    same = {"force_col_wise": True} if library is lightgbm.LGBMRegressor else {}
    wanted = library(**settings, **same).fit(X[:, :3], SIGNAL)
    np.testing.assert_allclose(found.predict(X[:, :3]), wanted.predict(X[:, :3]), rtol=1e-5, atol=1e-6)


def test_codes_of_xgboost_s_arrays_are_categories_where_it_is_told_so():
    codes = np.column_stack([X[:, 0], np.maximum(X[:, 3], 0) * 7 % 5])
    plan = RowsPlan(places={"x": 0, "y": 1}, num_features=2)
    made = xgboost.XGBRegressor(n_estimators=3, max_depth=3, feature_types=["q", "c"], enable_categorical=True)
    found = grow(Alone(cut(codes, SIGNAL)), made, plan).estimator
    wanted = clone(made).fit(codes, SIGNAL)
    assert "c" in wanted.get_booster().feature_types
    assert found.get_booster().get_dump() == wanted.get_booster().get_dump()


@pytest.mark.parametrize("library", [xgboost.XGBRegressor, lightgbm.LGBMRegressor], ids=["xgboost", "lightgbm"])
def test_a_model_to_go_on_with_knows_categories_by_their_values(library):
    settings = {"n_estimators": 3, "max_depth": 3}
    settings |= {"enable_categorical": True} if library is xgboost.XGBRegressor else {"verbose": -1}
    other = FRAME.assign(kind=FRAME["kind"].cat.set_categories(list("xyz")))
    first, rows = library(**settings).fit(other, SIGNAL), cut(X, SIGNAL, WEIGHTS)
    if library is lightgbm.LGBMRegressor:
        with pytest.raises(ValueError, match=r"init_model was fitted with the categories \[\['x', 'y', 'z'\]\]"):
            grow(Alone(rows), library(**settings), PLAN, start=first.booster_)
        return
    found = grow(Alone(rows), library(**settings), PLAN, start=first).estimator
    wanted = library(**settings).fit(FRAME, SIGNAL, sample_weight=WEIGHTS, xgb_model=first)
    np.testing.assert_allclose(found.predict(FRAME), wanted.predict(FRAME), rtol=1e-5, atol=1e-5)


def test_a_checkpoint_is_of_the_categories_that_its_codes_mean(tmp_path):
    rows, made = cut(X, SIGNAL, WEIGHTS), xgboost.XGBRegressor(n_estimators=3, enable_categorical=True)
    grow(Alone(rows, tmp_path), made, PLAN, keeps=True)
    other = replace(PLAN, categories=(None, None, None, list("xyz")))
    with pytest.raises(ValueError, match=r"categories=.*\['z', 'y', 'x'\].* there and .*\['x', 'y', 'z'\].* here"):
        grow(Alone(rows, tmp_path), made, other, keeps=True)


def test_lightgbm_goes_on_with_a_model():
    rows = cut(X[:, :3], SIGNAL)
    first = lightgbm.LGBMRegressor(n_estimators=3, num_leaves=7, verbose=-1).fit(X[:, :3], SIGNAL)
    settings = {"n_estimators": 4, "num_leaves": 7, "verbose": -1}
    found = grow(Alone(rows), lightgbm.LGBMRegressor(**settings), PLAIN, start=first.booster_)
    wanted = lightgbm.LGBMRegressor(**settings, force_col_wise=True, deterministic=True)
    wanted.fit(X[:, :3], SIGNAL, init_model=first)
    assert found.estimator.booster_.num_trees() == 7
    np.testing.assert_allclose(found.estimator.predict(X[:, :3]), wanted.predict(X[:, :3]), rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.uint8, np.int64, np.float16, bool])
def test_features_of_lightgbm_are_numbers_of_any_kind(dtype):
    x = RANDOM.integers(0, 5, (600, 3)).astype(dtype)
    settings = {"n_estimators": 3, "num_leaves": 7, "verbose": -1}
    found = grow(Alone(cut(x, SIGNAL)), lightgbm.LGBMRegressor(**settings), PLAIN).estimator
    wanted = lightgbm.LGBMRegressor(**settings, force_col_wise=True).fit(x, SIGNAL)
    np.testing.assert_allclose(found.predict(x), wanted.predict(x), rtol=1e-6)


def test_a_validation_set_of_lightgbm_without_weights_weighs_all_rows_alike():
    settings = {"n_estimators": 3, "num_leaves": 7, "verbose": -1, "class_weight": {0: 1.0, 1: 2.0, 2: 5.0}}
    rows = cut(X[:, :3], LABELS)
    evals = (scored("valid_0", PLAIN), scored("training", PLAIN))
    found = grow(Alone(rows, valid_0=rows, training=rows), lightgbm.LGBMClassifier(**settings), PLAIN, evals=evals)
    wanted = lightgbm.LGBMClassifier(**settings, force_col_wise=True)
    x = X[:, :3]  # what it knows as the training set has the training set's weights
    with pytest.warns(lightgbm.basic.LGBMDeprecationWarning):
        wanted.fit(x, LABELS, eval_set=[(x.copy(), LABELS.copy()), (x, LABELS)])
    ours, theirs = found.estimator.evals_result_, wanted.evals_result_
    assert set(ours) == set(theirs) == {"valid_0", "training"}
    for name, metrics in ours.items():
        np.testing.assert_allclose(metrics["multi_logloss"], theirs[name]["multi_logloss"], rtol=1e-6)


def test_lightgbm_takes_one_target_a_row():
    with pytest.raises(ValueError, match=r"Targets have the shape \(2,\) a row"):
        grow(Alone(cut(X[:, :3], np.stack([SIGNAL, SIGNAL], axis=1))), lightgbm.LGBMRegressor(), PLAIN)
