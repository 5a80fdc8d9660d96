"""Incremental estimators, whose runs are in this process here: labels, scores, and what they take of an estimator."""

from __future__ import annotations

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.cluster import MiniBatchKMeans
from sklearn.decomposition import IncrementalPCA
from sklearn.exceptions import DataConversionWarning, NotFittedError
from sklearn.linear_model import LinearRegression, SGDClassifier, SGDRegressor
from sklearn.naive_bayes import GaussianNB

import dask_train as dt
from dask_train.linear_model.columns import computed_here
from dask_train.sklearn import Incremental, incremental

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(60, 3))
LABELS = np.where(X[:, 0] > 0, "yes", "no")
WEIGHTS = RANDOM.integers(0, 3, 60)
FRAME = pd.DataFrame(X, columns=list("abc"))


@pytest.fixture(autouse=True)
def _here(pool, monkeypatch):
    def train(task, roles, **settings):
        assert roles == {"worker": 1}
        return dt.train(task, roles={"worker": 0}, **settings)

    def predict(model, rows, *, method):
        return da.from_array(getattr(model, method)(rows.compute(scheduler="synchronous")), chunks=25)

    def computed(columns, client=None):
        return tuple(map(on_dask, computed_here(columns)))

    monkeypatch.setattr(incremental, "train", train)
    monkeypatch.setattr(incremental, "computed_in_shared_memory", computed)
    monkeypatch.setattr(incremental, "predict", predict)


def on_dask(array):
    return da.from_array(array, chunks=(25, *array.shape[1:]))


def test_labels_come_with_the_first_rows_and_stay():
    model = Incremental(GaussianNB(), batch_size=60, shuffle=False)
    one = LABELS == "yes"
    model.partial_fit(X[one], LABELS[one], classes=["yes", "no", "maybe"])
    assert model.classes_.tolist() == ["maybe", "no", "yes"]
    model.partial_fit(on_dask(X), on_dask(LABELS), WEIGHTS).partial_fit(X, LABELS, classes=["no", "yes", "maybe"])
    wanted = GaussianNB().partial_fit(X[one], LABELS[one], classes=["maybe", "no", "yes"])
    wanted.partial_fit(X, LABELS, sample_weight=WEIGHTS).partial_fit(X, LABELS)
    np.testing.assert_allclose(model.estimator_.theta_, wanted.theta_)
    with pytest.raises(ValueError, match=r"classes is \['no', 'yes'\], and the first rows were learnt with \['maybe'"):
        model.partial_fit(X, LABELS, classes=["no", "yes"])
    assert model.fit(X, LABELS).classes_.tolist() == ["no", "yes"], "from the beginning"


def test_labels_that_are_named_are_not_looked_for(monkeypatch):
    wanted = Incremental(GaussianNB(), shuffle=False).fit(on_dask(X), on_dask(LABELS)).estimator_
    monkeypatch.setattr(incremental, "classes_of", None)
    model = Incremental(GaussianNB(), shuffle=False).fit(on_dask(X), on_dask(LABELS), classes=["yes", "no", "maybe"])
    assert model.classes_.tolist() == ["maybe", "no", "yes"]
    np.testing.assert_array_equal(model.estimator_.theta_[1:], wanted.theta_)
    with pytest.raises(ValueError, match=r"y has the label 'no', which is none of the classes \['yes'\]"):
        model.fit(X[:, :2], LABELS, classes=["yes"])
    assert model.classes_.tolist() == ["maybe", "no", "yes"], "those of what was learnt"
    assert model.n_features_in_ == 3


def test_a_fit_begins_anew_and_leaves_what_was_passed_as_it_is():
    given = SGDRegressor(random_state=0)
    model = Incremental(given, epochs=2, batch_size=25, shuffle=False, train_kwargs={"stop": "steps >= 100"})
    first = model.fit(on_dask(X), on_dask(X[:, 0])).estimator_
    assert (model.ledger_.trained, hasattr(given, "coef_")) == (120, False)
    with pytest.warns(DataConversionWarning, match="A column-vector y was passed when a 1d array was expected"):
        np.testing.assert_array_equal(model.fit(FRAME, X[:, :1]).estimator_.coef_, first.coef_)
    with pytest.warns(DataConversionWarning):
        model.fit(on_dask(X), on_dask(X[:, :1]))
    np.testing.assert_array_equal(model.fit(X.astype(object), X[:, 0].astype(object)).estimator_.coef_, first.coef_)
    again = clone(model)
    assert again.get_params()["train_kwargs"] == {"stop": "steps >= 100"}
    assert not hasattr(again, "estimator_")


@pytest.mark.parametrize("given", [np.asarray, on_dask])
def test_scores_are_those_of_the_estimator(given):
    for estimator, y in ((SGDClassifier(random_state=0), LABELS), (SGDRegressor(random_state=0), X @ [1, 2, 3])):
        model = Incremental(estimator, batch_size=20).fit(X, y)
        wanted = model.estimator_.score(X, y, WEIGHTS)
        for each in (given(y), y, y[:, None]):
            assert model.score(given(X), each, given(WEIGHTS)) == pytest.approx(wanted)
        assert model.score(X, on_dask(y), on_dask(WEIGHTS)) == pytest.approx(wanted)


def test_a_score_is_of_the_features_of_fit():
    model = Incremental(SGDClassifier(random_state=0))
    with pytest.raises(NotFittedError):
        model.score(X, LABELS)
    model.fit(FRAME, LABELS)
    with pytest.raises(ValueError, match="Feature names must be in the same order"):
        model.score(FRAME[list("cba")], LABELS)


def test_clusters_have_no_score_of_dask_collections():
    model = Incremental(MiniBatchKMeans(2, random_state=0)).fit(X)
    assert model.score(X) == pytest.approx(model.estimator_.score(X))
    for y in (None, on_dask(WEIGHTS)):
        with pytest.raises(ValueError, match=r"of classifiers and regressors, and needs y.*for MiniBatchKMeans"):
            model.score(on_dask(X), y)


def test_it_has_what_the_estimator_has():
    reduced, learnt = Incremental(IncrementalPCA(2)), Incremental(SGDClassifier())
    assert (is_classifier(reduced), is_classifier(learnt), is_regressor(Incremental(SGDRegressor()))) == (0, 1, 1)
    assert [hasattr(reduced, name) for name in ("predict", "transform", "predict_proba")] == [False, True, False]
    assert [hasattr(learnt, name) for name in ("predict", "transform", "decision_function")] == [True, False, True]
    assert not hasattr(learnt, "predict_proba"), "of hinge loss"
    np.testing.assert_allclose(reduced.fit(X).transform(on_dask(X)), reduced.estimator_.transform(X))
    np.testing.assert_allclose(reduced.transform(X.tolist()), reduced.estimator_.transform(X))


@pytest.mark.parametrize(
    ("estimator", "y", "settings", "error", "told"),
    [
        (LinearRegression(), X[:, 0], {}, TypeError, "LinearRegression has no partial_fit"),
        (SGDClassifier(), None, {}, ValueError, "SGDClassifier requires y to be passed"),
        (SGDClassifier(), np.stack([LABELS] * 2, 1), {}, ValueError, "a classifier takes a label a row"),
        (SGDClassifier(), X[:, 0], {}, ValueError, "Unknown label type: continuous"),
        (SGDClassifier(), LABELS, {"roles": {}, "data": X}, ValueError, "train_kwargs has data, roles, which fit sets"),
    ],
)
def test_what_can_not_be_learnt(estimator, y, settings, error, told):
    with pytest.raises(error, match=told):
        Incremental(estimator, train_kwargs=settings).fit(X, y)


def test_no_checkpoint_is_the_best_one(tmp_path):
    kept = dt.Checkpoint(tmp_path / "kept", best="loss")
    with pytest.raises(ValueError, match=r"an incremental estimator reports no scores.*Leave best out"):
        Incremental(SGDClassifier(), train_kwargs={"checkpoint": kept}).fit(X, LABELS)
    assert not (tmp_path / "kept").exists(), "nothing was begun"


def test_further_rows_do_not_go_on_with_a_checkpoint(tmp_path):
    settings = {"checkpoint": str(tmp_path), "resume": True}
    model = Incremental(SGDClassifier(random_state=0), train_kwargs=settings).fit(X, LABELS)
    with pytest.raises(
        ValueError, match="resume=True, which is of fit: partial_fit continues with what this estimator"
    ):
        model.partial_fit(X, LABELS)
    again = clone(model).fit(X, LABELS)
    np.testing.assert_array_equal(again.estimator_.coef_, model.estimator_.coef_)


@pytest.mark.parametrize(
    ("settings", "told"), [({"epochs": 0}, "epochs is 0"), ({"batch_size": "x"}, "batch_size is 'x'")]
)
def test_numbers_are_looked_at_before_anything_starts(settings, told, monkeypatch):
    monkeypatch.setattr(incremental, "train", None)
    with pytest.raises(ValueError, match=f"{told}; it is a whole number of at least 1"):
        Incremental(SGDClassifier(), **settings).fit(X, LABELS)


def test_frames_whose_rows_may_not_belong_together_are_refused():
    table = pd.DataFrame(X, columns=list(map(str, range(X.shape[1])))).assign(y=LABELS)
    frame = dd.from_pandas(table, npartitions=3)
    with pytest.raises(ValueError, match=r"not cut from one frame.*their rows may not belong together"):
        Incremental(GaussianNB()).fit(frame.sort_values("0").drop(columns="y"), frame["y"])
