"""Trees as a search trains them: what is refused, and which rounds the best model predicts with."""

from __future__ import annotations

from types import SimpleNamespace

import lightgbm
import numpy as np
import pandas as pd
import pytest
import xgboost
from alone import FRAME, LABELS, Alone, X, cut

from dask_train.collections.schema.frame_schema import FrameSchema
from dask_train.data.columns import Column, Columns
from dask_train.fitting.model_kind import TrialRows
from dask_train.fitting.trees.lightgbm_api import LIGHTGBM
from dask_train.fitting.trees.xgboost_api import XGBOOST
from dask_train.inputs.making import input_data
from dask_train.shared_data.segments import SharedSegments

VALIDATION = X[:200, :3], LABELS[:200]


def rows(x=None, y=None, *, workers=1, validation=VALIDATION, **of_frame):
    data = input_data("data", X[:, :3] if x is None else x, LABELS if y is None and x is None else y, None, **of_frame)
    validation = None if validation is None else input_data("validation_data", *validation, None)
    return TrialRows(data=data, validation=validation, workers=workers)


def trial(model, of=None, **given):
    kind = XGBOOST if isinstance(model, xgboost.XGBModel) else LIGHTGBM
    return kind.trial(model, kind.settings.of(given), of or rows())


@pytest.mark.parametrize("made", [xgboost.XGBClassifier, lightgbm.LGBMClassifier])
def test_the_model_of_an_earlier_round_is_that_of_a_fit_of_fewer_rounds(made):
    params = {"max_depth": 3, "random_state": 0, **({"verbosity": -1} if made is lightgbm.LGBMClassifier else {})}
    model = made(n_estimators=8, early_stopping_rounds=2, **params)  # whose own best round is no matter
    spec = trial(model)
    session = Alone(cut(X[:, :3], LABELS), validation=cut(X[:, :3], LABELS))
    outcome = spec.work(session)
    assert len(outcome.epoch) == 8
    best = spec.model(spec.work.as_of(outcome, 4))
    wanted = made(n_estimators=5, **params).fit(X[:, :3], LABELS)
    np.testing.assert_allclose(best.predict_proba(X[:, :3]), wanted.predict_proba(X[:, :3]), rtol=1e-5)
    assert (best.best_iteration if made is xgboost.XGBClassifier else best.best_iteration_ - 1) == 4
    assert not hasattr(model, "n_classes_") or not model.__sklearn_is_fitted__(), "what build returned stays as it is"


def test_names_and_categories_of_frames_go_to_the_library():
    frame = FRAME.assign(label=LABELS, kind=FRAME["kind"].fillna("z"))
    of = rows(frame, label="label", validation=None)
    known = input_data("validation_data", frame, None, None, label="label")
    task = trial(xgboost.XGBClassifier(enable_categorical=True), TrialRows(data=of.data, validation=known, workers=1))
    matrix = task.work.task.columns.matrix
    assert matrix.names == ("a", "b", "c", "kind")
    assert [known if known is None else list(known) for known in matrix.categories] == [None] * 3 + [["z", "y", "x"]]
    with pytest.raises(ValueError, match="kind are categories, which XGBClassifier takes with enable_categorical=True"):
        trial(xgboost.XGBClassifier(), TrialRows(data=of.data, validation=known, workers=1))


def test_published_numbers_go_with_arrays():
    columns = Columns.of_batch(2, [Column(dtype="<f8", row_shape=(3,)), Column(dtype="<i8", row_shape=())])
    frames = (FrameSchema.of(FRAME[["a", "b", "c"]]), None)
    held = SharedSegments(schema=columns, lengths=np.array([600]), futures=(), frames=frames)
    published = input_data("data", SimpleNamespace(segments=held), None, None)
    arrays = rows().data
    for data, validation, names in (
        (published, arrays, None),
        (arrays, published, None),
        (published, published, ("a", "b", "c")),
    ):
        task = trial(xgboost.XGBClassifier(), TrialRows(data=data, validation=validation, workers=1)).work.task
        assert [columns.matrix.names for columns in (task.columns, task.evals[0].columns)] == [names] * 2
    framed = input_data("data", FRAME[["a", "b", "c"]].assign(label=LABELS), None, None, label="label")
    with pytest.raises(ValueError, match="validation_data has the features 3, and the data"):
        trial(xgboost.XGBClassifier(), TrialRows(data=framed, validation=arrays, workers=1))


@pytest.mark.parametrize(
    ("model", "of", "told"),
    [
        (xgboost.XGBClassifier(booster="dart"), {}, "booster='dart': later rounds change"),
        (lightgbm.LGBMClassifier(boosting_type="dart"), {}, "boosting_type='dart': later rounds change"),
        (lightgbm.LGBMClassifier(boosting="dart"), {}, "boosting='dart': later rounds change"),
        (xgboost.XGBRanker(), {}, "build returned a XGBRanker, which needs the number of each row's query"),
        (
            xgboost.XGBClassifier(callbacks=[xgboost.callback.EarlyStopping(rounds=2, save_best=True)]),
            {},
            "save_best=True. removes rounds after the best one",
        ),
        (xgboost.XGBClassifier(), {"validation": None}, "Pass validation_data, or validation_split"),
        (xgboost.XGBClassifier(), {"validation": (X[:9, :2], LABELS[:9])}, "validation_data has the features 2"),
        (xgboost.XGBClassifier(), {"x": X[:9].reshape(9, 2, 2), "y": LABELS[:9]}, "take a matrix of features"),
        (xgboost.XGBClassifier(), {"x": {"a": X[:9]}, "y": LABELS[:9]}, "take a matrix of features"),
        (xgboost.XGBClassifier(), {"x": X[:9]}, "take a matrix of features and a column of targets"),
        (xgboost.XGBRegressor(objective="survival:cox"), {"workers": 2}, "objective='survival:cox' with 2 workers"),
        (xgboost.XGBClassifier(max_depth=-3), {}, "max_depth"),
    ],
)
def test_what_a_search_can_not_train_is_refused_before_it_is_sent(model, of, told):
    with pytest.raises(ValueError, match=told):
        trial(model, rows(**of))


def test_rows_of_a_search_have_one_weight_each():
    wide = input_data("data", X[:, :3], LABELS, np.ones((600, 2)))
    with pytest.raises(ValueError, match=r"data has weights of the shape \(2,\) a row"):
        trial(xgboost.XGBClassifier(), TrialRows(data=wide, validation=rows().validation, workers=1))


def test_metrics_and_labels_that_a_library_does_not_know_are_refused():
    with pytest.raises(ValueError, match="eval_metric names 'loglos', which is no metric of LightGBM"):
        trial(lightgbm.LGBMClassifier(), eval_metric="loglos")
    frame = pd.DataFrame({"a": X[:6, 0], "label": pd.Categorical(list("aabbab"))})
    with pytest.raises(TypeError, match="The labels of data are categories"):
        trial(lightgbm.LGBMClassifier(), rows(frame, label="label"))
