"""What one rank makes of its parts, with either library: the estimator that is made of all rows at once."""

from __future__ import annotations

import sys
from itertools import pairwise
from types import SimpleNamespace

import lightgbm
import numpy as np
import pytest
import xgboost
from alone import BEGUN, FRAME, LABELS, PLAIN, PLAN, RANDOM, SIGNAL, WEIGHTS, Alone, Rows, X, cut, grow, scored

from dask_train.fitting.trees.role import TreesRole
from dask_train.fitting.trees.task import TreesTask


def squared(y_true, y_pred):
    return y_pred - y_true, np.ones_like(y_true)


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


@pytest.mark.parametrize("library", [xgboost.XGBRegressor, lightgbm.LGBMRegressor])
def test_an_objective_of_ones_own(library):
    settings = {"n_estimators": 4, "objective": squared, "max_depth": 3}
    found = grow(Alone(cut(X[:, :3], SIGNAL)), library(**settings), PLAIN).estimator
    same = {"force_col_wise": True} if library is lightgbm.LGBMRegressor else {}
    wanted = library(**settings, **same).fit(X[:, :3], SIGNAL)
    np.testing.assert_allclose(found.predict(X[:, :3]), wanted.predict(X[:, :3]), rtol=1e-5, atol=1e-6)


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


@pytest.mark.parametrize("library", [xgboost, lightgbm], ids=["xgboost", "lightgbm"])
def test_partitions_without_rows_change_nothing(library):
    x = X[:, :3]
    made = (library.XGBClassifier if library is xgboost else library.LGBMClassifier)(n_estimators=3, max_depth=3)
    parts = [(x[a:b], LABELS[a:b]) for a, b in pairwise((0, 0, 250, 250, 600, 600))]
    evals = (scored("validation_0", PLAIN),)
    found, wanted = (
        grow(Alone(rows, validation_0=rows), made, PLAIN, evals=evals) for rows in (Rows(*parts), cut(x, LABELS))
    )
    np.testing.assert_allclose(found.estimator.predict_proba(x), wanted.estimator.predict_proba(x), rtol=1e-6)
    for name, values in wanted.history.items():
        np.testing.assert_allclose(found.history[name], values, rtol=1e-6)


@pytest.mark.parametrize("rank", [0, 1])
def test_the_first_rank_alone_returns_what_all_have_made(rank, monkeypatch):
    made, session = {"estimator": object(), "callbacks": []}, Alone(cut(X[:, :3], SIGNAL))
    session.world_rank = rank
    library = SimpleNamespace(grow=lambda *_: made, FREE=frozenset())
    monkeypatch.setitem(sys.modules, "dask_train.fitting.trees.some_role", library)
    role = TreesRole(TreesTask(library="some", estimator=xgboost.XGBRegressor(), columns=PLAIN))
    outcome = role(session)
    assert outcome is None if rank else outcome.header == made
    assert role.__name__ == "fit", "what a run is called by"


@pytest.mark.parametrize(
    ("error", "refused"),
    [
        (ValueError("Invalid classes"), True),
        (xgboost.core.XGBoostError("[1:2:3] /workspace/src/objective/regression_obj.cu:83: label must be"), True),
        (lightgbm.basic.LightGBMError("[poisson]: at least one target label is negative"), True),
        (xgboost.core.XGBoostError("[1:2:3] /workspace/src/collective/result.cc:78: Allreduce failed"), False),
        (lightgbm.basic.LightGBMError("Socket recv error, Connection reset by peer (code: 104)"), False),
        (ZeroDivisionError("of a metric"), False),
        (OSError("The disk is full"), False),
    ],
)
def test_what_the_library_refuses_is_known_from_what_went_wrong_between_ranks(error, refused):
    assert TreesRole(TreesTask(library="some", estimator=None, columns=PLAN)).refuses(error) is refused
