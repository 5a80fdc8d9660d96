"""What a fit of boosted trees refuses before anything starts."""

from __future__ import annotations

from dataclasses import replace

import dask.array as da
import lightgbm
import numpy as np
import pandas as pd
import pytest
import xgboost
import xgboost.dask
from dask import delayed

import dask_train as dt
from dask_train.fitting import start as api
from dask_train.fitting.trees.api import evals_of
from dask_train.fitting.trees.settings import TreesSettings

X, Y = np.zeros((8, 2)), np.arange(8) % 2


@pytest.mark.parametrize(
    ("model", "settings", "why"),
    [
        (xgboost.XGBClassifier(tree_method="exact"), {}, "tree_method='exact': only histograms"),
        (xgboost.XGBRegressor(booster="gblinear"), {}, "booster='gblinear' has no trees"),
        (xgboost.XGBRanker(), {}, "XGBRanker ranks rows within queries. Pass qid="),
        (xgboost.XGBRegressor(), {"qid": Y}, "qid is for rankers, and model is a XGBRegressor"),
        (xgboost.XGBRegressor(), {"streaming": 0}, "streaming is 0; pass True, False, or how many partitions"),
        (
            xgboost.XGBRegressor(),
            {"streaming": True, "workers": 9},
            "workers=9, and the data has 8 partitions with rows",
        ),
        (xgboost.XGBRanker(), {"streaming": True, "qid": Y}, "streaming with XGBRanker: a query's rows"),
        (xgboost.XGBRegressor(device="cuda"), {"streaming": True}, "streaming with device='cuda'"),
        (
            xgboost.XGBRegressor(early_stopping_rounds=2),
            {},
            "early_stopping_rounds=2: early stopping needs at least 1 validation dataset",
        ),
        (lightgbm.LGBMRegressor(n_iter_no_change=3), {}, "n_iter_no_change=3: early stopping needs at least 1"),
        (xgboost.XGBRegressor(), {"stop": "val_rmse < 1"}, "stop looks at val_rmse, which nothing computes"),
        (xgboost.XGBRegressor(), {"validation_data": (X,)}, r"it is \(X, y\)"),
        (xgboost.XGBRegressor(), {"workers": 1, "validation_data": X}, "^validation_data: there are no targets"),
        (
            xgboost.XGBRegressor(),
            {"workers": 1, "validation_data": (X[:, :1], Y)},
            "^validation_data has the features 1, and the data 2",
        ),
        (lightgbm.LGBMRegressor(), {"workers": 1, "validation_data": X}, "^validation_data: there are no targets"),
        (lightgbm.LGBMRegressor(), {"workers": 1, "eval_set": [(X[:, :1], Y)]}, r"^eval_set\[0\] has the features 1"),
        (
            xgboost.XGBRegressor(),
            {"eval_set": [(X, Y)], "sample_weight_eval_set": []},
            "There are 1 sets to score, and 0",
        ),
        (xgboost.XGBRegressor(), {"eval_set": X}, r"eval_set is a ndarray; .* Pass eval_set=\[\(X, y\)\]"),
        (xgboost.XGBRegressor(), {"eval_set": da.from_array(X)}, "eval_set is a Array; it is a list"),
        (lightgbm.LGBMRegressor(), {"eval_set": 3}, "eval_set is a int; it is a list"),
        (lightgbm.LGBMRegressor(), {"eval_set": [X, Y]}, r"eval_set\[0\] is a ndarray, and each set .* is a pair"),
        (
            lightgbm.LGBMRegressor(),
            {"eval_set": [(X, Y), pd.DataFrame({"a": Y, "b": Y})]},
            r"eval_set\[1\] is a DataFrame, and each set .* is a pair",
        ),
        (
            xgboost.XGBRegressor(),
            {"eval_set": [(X, Y, Y)]},
            r"eval_set\[0\] is a tuple with 3 elements, .* weights go to sample_weight_eval_set",
        ),
        (
            xgboost.XGBRegressor(),
            {"checkpoint": dt.Checkpoint("here", best="val_rmse", restore_best=True)},
            "restore_best",
        ),
        (
            xgboost.XGBRegressor(),
            {"checkpoint": dt.Checkpoint("here", best="loss")},
            "known by 'loss', which nothing computes: pass validation_data or eval_set",
        ),
        (lightgbm.LGBMRegressor(), {"stop": "l2 < 1 or round > 9"}, "looks at l2, and the model's scores are round"),
        (xgboost.XGBRegressor(), {"stop": "epoch > 9"}, "looks at epoch, and the model's scores are round"),
        (xgboost.XGBRegressor(), {"resume": True}, "resumes from a checkpoint"),
        (
            xgboost.XGBRanker(lambdarank_unbiased=True),
            {"recovery": "in_place", "qid": Y},
            "with lambdarank_unbiased=True xgboost would grow other trees",
        ),
        (
            xgboost.XGBRegressor(process_type="update", updater="refresh"),
            {"recovery": dt.RecoveryPolicy(scope="in_place")},
            "with process_type='update' xgboost",
        ),
        (
            lightgbm.LGBMRegressor(subsample=0.5, subsample_freq=1, colsample_bytree=0.9),
            {"recovery": "in_place"},
            "with colsample_bytree=0.9, subsample=0.5 lightgbm would grow other trees",
        ),
        (xgboost.dask.DaskXGBRegressor(), {}, r"is a DaskXGBRegressor, .* by itself. Pass xgboost.XGBRegressor, or"),
        (lightgbm.DaskLGBMClassifier(), {}, r"is a DaskLGBMClassifier, .* Pass lightgbm.LGBMClassifier, or call"),
    ],
)
def test_what_can_not_be(model, settings, why):
    with pytest.raises(ValueError, match=why):
        dt.fit(model, X, Y, **settings)


@pytest.mark.parametrize("texts", [np.array(["a", "b"] * 4), np.array(["a", "b"] * 4, object)], ids=["fixed", "object"])
@pytest.mark.parametrize(
    ("model", "why"),
    [
        (xgboost.XGBClassifier(), "The labels are text, and XGBClassifier takes numbers: 0, 1 and so on for classes"),
        (xgboost.XGBRegressor(), r"The labels are text, and XGBRegressor takes numbers\. "),
        (lightgbm.LGBMRegressor(), r"The labels are text, and LGBMRegressor takes numbers\. "),
    ],
)
def test_text_is_no_label_of_what_takes_numbers(model, why, texts):
    frame = pd.DataFrame(X, columns=["a", "b"]).assign(y=texts)
    with pytest.raises(ValueError, match=why):
        dt.fit(model, X, texts)
    with pytest.raises(ValueError, match=why):
        dt.fit(model, frame, label="y")


def test_arguments_of_other_kinds_of_models_are_named():
    with pytest.raises(
        TypeError, match=r"takes no epochs= for a model of type XGBClassifier, an .* the estimator's n_estimators\."
    ):
        dt.fit(xgboost.XGBClassifier(), X, Y, epochs=3)


@pytest.mark.parametrize("model", [xgboost.XGBClassifier(), lightgbm.LGBMClassifier()])
def test_a_log_that_is_none_is_refused_before_a_cluster_is_started(model):
    with pytest.raises(TypeError, match=r"log has 3; pass dt\.logging\.MLflow"):
        dt.fit(model, X, Y, log=3)


@pytest.mark.parametrize("model", [xgboost.XGBClassifier(), lightgbm.LGBMClassifier()])
def test_data_that_can_not_be_is_refused_before_a_cluster_is_started(model, monkeypatch):
    monkeypatch.setattr(api, "client_or_local", lambda *_: pytest.fail("a cluster of this machine is started"))
    with pytest.raises(ValueError, match="8, 7 rows; they have to be the same"):
        dt.fit(model, X, Y[1:])


FRAME = pd.DataFrame({"a": Y, "b": Y, "w": 1.0})
COLUMNS = {"features": "a", "label": "b"}


@pytest.mark.parametrize("model", [xgboost.XGBRegressor(), lightgbm.LGBMRegressor()])
@pytest.mark.parametrize(
    ("rows", "more", "given"),
    [
        ((X, Y), {"validation_data": (X + 1, Y)}, np.ones(8)),
        ((X, Y), {"eval_set": [(X + 1, Y)]}, np.ones(8)),
        ((FRAME,), {"validation_data": FRAME, **COLUMNS}, "w"),
    ],
    ids=["tuple", "sets", "frame"],
)
def test_rows_to_validate_on_have_their_weights_and_first_scores_however_they_are_passed(
    model, rows, more, given, monkeypatch
):
    tasks = []
    monkeypatch.setattr(api, "launch", lambda role, *_, **__: tasks.append(role.task))
    names = ("sample_weight_eval_set", "base_margin_eval_set")
    if isinstance(model, lightgbm.LGBMRegressor):
        names = ("eval_sample_weight", "eval_init_score")
    dt.fit(model, *rows, workers=1, **{name: [given] for name in names}, **more)
    (found,) = tasks[0].evals
    assert found.columns.places() == {"x": 0, "y": 1, "sample_weight": 2}
    assert found.columns.margins == 3


@pytest.mark.parametrize("model", [xgboost.XGBRegressor(), lightgbm.LGBMRegressor()])
def test_a_frame_to_validate_on_has_its_weights_whatever_names_its_columns_have(model, monkeypatch):
    tasks = []
    monkeypatch.setattr(api, "launch", lambda role, *_, **__: tasks.append(role.task))
    margin = "base_margin" if isinstance(model, xgboost.XGBRegressor) else "init_score"
    frame = FRAME.assign(v=0.0).set_axis(range(4), axis=1)
    dt.fit(
        model, frame, workers=1, validation_data=frame.copy(), features=0, label=1, sample_weight=2, **{margin: [2, 3]}
    )
    (found,) = tasks[0].evals
    assert (found.columns.weights, found.columns.margins) == (2, 3)


def test_a_list_of_delayed_partitions_to_validate_on_is_one_set_however_many_there_are():
    settings = TreesSettings(validation_data=[delayed(FRAME), delayed(FRAME)])
    assert evals_of(settings, None, None, by_name={}) == [(settings.validation_data, None, {})]


@pytest.mark.parametrize("model", [xgboost.XGBRegressor(), lightgbm.LGBMRegressor()])
@pytest.mark.parametrize(
    ("eval_set", "number"),
    [
        (lambda: iter([(X + 1, Y), (X + 2, Y)]), 2),
        (lambda: ((X + 1, Y), [X + 2, Y]), 2),
        (lambda: (X + 1, Y), 1),
        (lambda: (da.from_array(X + 1), da.from_array(Y)), 1),
    ],
    ids=["iterator", "tuple-of-pairs", "pair", "pair-of-dask"],
)
def test_all_sets_to_score_are_scored_whatever_holds_them(model, eval_set, number, monkeypatch):
    tasks = []
    monkeypatch.setattr(api, "launch", lambda role, *_, **__: tasks.append(role.task))
    dt.fit(model, X, Y, workers=1, eval_set=eval_set())
    assert len(tasks[0].evals) == number
    settings = TreesSettings(eval_set=eval_set())
    assert settings.validates
    assert len(replace(settings).eval_set) == number


def test_a_pair_of_lists_of_delayed_partitions_is_one_set():
    parts = [delayed(X), delayed(X)]
    assert TreesSettings(eval_set=(parts, parts)).eval_set == [(parts, parts)]


@pytest.mark.parametrize("scored", [{"validation_data": (X + 1, Y)}, {"eval_set": [(X + 1, Y)]}], ids=["tuple", "sets"])
@pytest.mark.parametrize("library", [xgboost, lightgbm], ids=["xgboost", "lightgbm"])
def test_rows_to_validate_on_have_queries_where_the_data_has_them(library, scored, monkeypatch):
    tasks = []
    monkeypatch.setattr(api, "launch", lambda role, *_, **__: tasks.append(role.task))
    ranker, regressor = (
        (xgboost.XGBRanker(), xgboost.XGBRegressor())
        if library is xgboost
        else (lightgbm.LGBMRanker(), lightgbm.LGBMRegressor())
    )
    what = r"^validation_data" if "validation_data" in scored else r"^eval_set\[0\]"
    with pytest.raises(ValueError, match=f"{what} has no numbers of queries, and the data has some. Pass eval_qid="):
        dt.fit(ranker, X, Y, qid=Y, workers=1, **scored)
    with pytest.raises(ValueError, match=f"{what} has numbers of queries, and the data has none. Pass qid="):
        dt.fit(regressor, X, Y, eval_qid=[Y], workers=1, **scored)
    dt.fit(ranker, X, Y, qid=Y, eval_qid=[Y], workers=1, **scored)
    assert tasks[0].evals[0].columns.groups == 2


def test_rows_to_validate_on_have_one_list_of_weights():
    with pytest.raises(ValueError, match="validation_data has weights, and a list of weights was passed, too"):
        dt.fit(lightgbm.LGBMRegressor(), X, Y, validation_data=(X, Y, Y), eval_sample_weight=[Y])


@pytest.mark.parametrize("model", [xgboost.XGBClassifier(), lightgbm.LGBMClassifier()])
def test_where_no_number_is_named_there_are_as_many_workers_as_of_other_models_and_no_more_than_parts(
    model, monkeypatch
):
    started = []
    monkeypatch.setattr(api, "client_or_local", lambda *_: "a client")
    monkeypatch.setattr(api, "launch", lambda _, roles, *__, **___: started.append(roles["worker"]))
    x, y = (da.from_array(each, chunks=4) for each in (X, Y))
    for hosts in (1, 3):
        monkeypatch.setattr(api, "default_fit_workers", lambda *_, hosts=hosts: hosts)
        dt.fit(model, x, y)
    dt.fit(model, x, y, workers=2)
    assert started == [1, 2, 2]


@pytest.mark.parametrize("model", [xgboost.XGBRegressor(enable_categorical=True), lightgbm.LGBMRegressor()])
def test_rows_to_validate_on_have_the_categories_of_the_data(model, monkeypatch):
    started = []
    monkeypatch.setattr(api, "launch", lambda role, *_, **__: started.append(role.task))
    frame = FRAME.assign(a=pd.Categorical(["u", "v"] * (len(FRAME) // 2)))
    other = frame.assign(a=frame["a"].cat.reorder_categories(["v", "u"]))
    dt.fit(model, frame, validation_data=frame.copy(), workers=1, **COLUMNS)
    dt.fit(model, frame, validation_data=other, workers=1, **COLUMNS)
    of_data, of_evals = zip(*((task.columns.matrix, task.evals[0].columns.matrix) for task in started), strict=True)
    for one, each in zip(of_data, of_evals, strict=True):
        assert [list(known) for known in each.categories if known is not None] == [["u", "v"]]
        assert list(one.categories[0]) == ["u", "v"]
    with pytest.raises(ValueError, match="Column 'a' of validation_data has 'x', and the model is fitted with"):
        dt.fit(model, frame, validation_data=frame.assign(a=pd.Categorical(["x"] * len(frame))), workers=1, **COLUMNS)
    with pytest.raises(
        TypeError, match=r"Column 'a' of validation_data is .*, and the model was fitted with categories"
    ):
        dt.fit(model, frame, validation_data=FRAME, workers=1, **COLUMNS)
