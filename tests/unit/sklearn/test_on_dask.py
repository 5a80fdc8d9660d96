"""What Keras estimators share: how rows, targets and weights reach a network, without training one."""

from __future__ import annotations

from types import SimpleNamespace

import keras
import numpy as np
import pandas as pd
import pytest
from dask import array as da
from dask import dataframe as dd
from keras import layers
from sklearn.exceptions import NotFittedError
from sklearn.metrics import accuracy_score, r2_score

from dask_train.sklearn import KerasClassifier, KerasRegressor, on_dask

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(10, 3))
LABELS = np.where(X[:, 0] > 0, "yes", "no")
FRAME = pd.DataFrame(X, columns=list("abc")).assign(y=X[:, 0], w=np.arange(10))
TABLE = dd.from_pandas(FRAME, npartitions=3)


def network(X, y):  # noqa: N803 - as Keras calls it
    model = keras.Sequential([layers.Input((X.shape[1],)), layers.Dense(y.shape[1], activation="softmax")])
    model.compile("sgd", "categorical_crossentropy")
    return model


@pytest.fixture
def given(monkeypatch):
    """What is trained on; nothing is."""
    found = {}

    def fitted(model, rows, y, settings, *, is_checked):
        model.history = SimpleNamespace(epoch=[0])
        found.update(x=rows, y=y, settings=settings)
        return "the ledger"

    monkeypatch.setattr(on_dask, "fitted", fitted)
    monkeypatch.setattr(on_dask, "rows_once", lambda columns, client, workers: columns)
    return found


@pytest.mark.parametrize(
    ("x", "y", "weight"),
    [
        (TABLE[list("abc")], TABLE["y"], TABLE["w"]),
        (TABLE[list("abc")], TABLE[["y"]], TABLE[["w"]]),
        (da.from_array(X, chunks=4), X[:, :1], np.arange(10)),
        (X, da.from_array(X[:, 0], chunks=4), da.from_array(np.arange(10), chunks=3)),
    ],
)
def test_one_target_is_a_column_and_weights_are_one_a_row(given, x, y, weight):
    model = KerasRegressor(network, fit_kwargs={"epochs": 1}).fit(x, y, weight, epochs=3)
    assert (model.n_features_in_, model.ledger_, given["settings"]["epochs"]) == (3, "the ledger", 3)
    np.testing.assert_array_equal(np.asarray(given["x"]), X)
    np.testing.assert_array_equal(np.asarray(given["y"]), X[:, :1])
    np.testing.assert_array_equal(np.asarray(given["settings"]["sample_weight"]), np.arange(10))
    assert model.fit_kwargs == {"epochs": 1}


@pytest.mark.parametrize("y", [LABELS, da.from_array(LABELS, chunks=4), pd.Series(LABELS)])
def test_labels_are_columns_of_classes(given, y):
    model = KerasClassifier(network).fit(da.from_array(X, chunks=4), y)
    assert model.classes_.tolist() == ["no", "yes"]
    np.testing.assert_array_equal(np.asarray(given["y"]), np.stack([LABELS == "no", LABELS == "yes"], 1))


def test_before_it_is_fitted_it_predicts_nothing_and_targets_are_needed():
    model = KerasRegressor(network)
    assert model.epoch_ == 0
    for rows in (X, da.from_array(X)):
        with pytest.raises(NotFittedError):
            model.predict(rows)
        with pytest.raises(ValueError, match="requires y to be passed"):
            model.fit(rows, None)


def test_features_are_those_of_fit_by_name_and_number(given):
    model = KerasRegressor(network).fit(TABLE[list("abc")], TABLE["y"])
    for rows, told in ((TABLE[list("bac")], "should match"), (TABLE[list("ab")], "should match")):
        with pytest.raises(ValueError, match=told):
            model.predict(rows)
    model.fit(da.from_array(X, chunks=4), X[:, 0])
    with pytest.raises(ValueError, match="X has 2 features, but KerasRegressor is expecting 3"):
        model.predict(da.from_array(X[:, :2], chunks=4))


@pytest.mark.parametrize("several", [False, True])
def test_scores_of_dask_collections_are_those_of_arrays(several, monkeypatch):
    """Each row counts once, also where targets or weights are a frame's single column."""
    predicted, y = (RANDOM.normal(size=(10, 2) if several else 10) for _ in range(2))
    weights = np.arange(10.0)
    monkeypatch.setattr(KerasRegressor, "predict", lambda _, rows: da.from_array(predicted, chunks=(4, 2)[: y.ndim]))
    model = KerasRegressor(network)
    for weight in (None, weights, weights[:, None], da.from_array(weights, chunks=5)):
        wanted = r2_score(y, predicted, sample_weight=None if weight is None else weights)
        for each in (y, y.reshape(10, -1), da.from_array(y, chunks=(3, 2)[: y.ndim])):
            assert model.score(da.from_array(X), each, weight) == pytest.approx(wanted)
    labels = LABELS[::-1]
    monkeypatch.setattr(KerasClassifier, "predict", lambda _, rows: da.from_array(LABELS, chunks=4))
    model = KerasClassifier(network)
    model.classes_ = np.array(["no", "yes"])
    for weight in (None, weights, weights[:, None]):
        wanted = accuracy_score(labels, LABELS, sample_weight=None if weight is None else weights)
        for each in (labels, labels[:, None], da.from_array(labels, chunks=3)):
            assert model.score(da.from_array(X), each, weight) == pytest.approx(wanted)


def test_scores_of_short_numbers_are_those_of_long_ones(monkeypatch):
    """Sums of them do not overflow."""
    rows, y, predicted = da.from_array(np.zeros((4000, 3)), chunks=1000), np.arange(4000) % 200, np.full(4000, 150.0)
    weights = (1 + y).astype("f2")
    monkeypatch.setattr(KerasRegressor, "predict", lambda *_: da.from_array(predicted.astype("f4"), chunks=1000))
    model = KerasRegressor(network)
    for dtype in ("f2", "i2", "u1"):
        for weight in (None, weights):
            found = model.score(rows, da.from_array(y.astype(dtype), chunks=1000), weight)
            assert found == pytest.approx(r2_score(y, predicted, sample_weight=weight))
    labels = np.where(y > 50, "yes", "no")
    monkeypatch.setattr(KerasClassifier, "predict", lambda *_: da.from_array(np.full(4000, "yes"), chunks=1000))
    model = KerasClassifier(network)
    model.classes_ = np.array(["no", "yes"])
    wanted = accuracy_score(labels, np.full(4000, "yes"), sample_weight=weights.astype("f8"))
    assert model.score(rows, da.from_array(labels, chunks=1000), weights) == pytest.approx(wanted)
