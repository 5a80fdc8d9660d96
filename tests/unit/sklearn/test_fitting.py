"""Where an estimator's model is trained, and what is seen to of it before and after."""

from __future__ import annotations

import keras
import numpy as np
import pytest
from dask import array as da
from keras import layers

from dask_train.sklearn import KerasClassifier, KerasRegressor, KerasTransformer, fitting
from dask_train.sklearn.fitting import fitted, is_on_cluster

X = np.zeros((8, 2), "f4")
ON_DASK = da.from_array(X, chunks=4)


def network(name="net"):
    return keras.Sequential([layers.Input((2,)), layers.Dense(2, activation="softmax")], name=name)


@pytest.mark.parametrize(
    ("y", "settings", "wanted"),
    [
        (X, {}, False),
        (X, {"epochs": 3, "validation_data": (X, X), "batch_size": 4}, False),
        (X, {"workers": 2}, True),
        (ON_DASK, {}, True),
        (X, {"sample_weight": ON_DASK[:, 0]}, True),
        (X, {"validation_data": (X, ON_DASK)}, True),
        (X, {"validation_data": ON_DASK}, True),
    ],
)
def test_what_only_dask_has_is_trained_on_the_cluster(y, settings, wanted):
    assert is_on_cluster(X, y, settings) is wanted


def test_a_task_trains_its_own_arrays_by_itself(monkeypatch):
    monkeypatch.setattr(fitting, "is_in_task", lambda: True)
    monkeypatch.setattr(fitting, "client_or_none", lambda _: pytest.fail("a task has a client, which is not asked for"))
    assert not is_on_cluster(X, X, {})


class Trained(keras.layers.Layer):
    """As a Keras model is after a fit, and what ``dt.fit`` returns."""

    def __init__(self, losses, weights):
        super().__init__()
        self.history, self.ledger = {"loss": losses}, "the ledger"
        self.learnt = [keras.Variable(each) for each in (np.zeros(3, "f4"), np.array(weights, "f4"))]


@pytest.mark.parametrize(
    ("losses", "weights", "told"),
    [
        ([0.5, np.nan], [0.0], "The loss was nan, so"),
        ([np.inf, 0.5], [0.0], "The loss was inf, so"),
        ([0.5, 0.4], [1.0, -np.inf], "Weights are NaN or infinite at the end, so"),
    ],
)
def test_a_model_that_has_learnt_no_numbers_is_not_fitted(losses, weights, told, monkeypatch):
    found = Trained(losses, weights)
    monkeypatch.setattr(fitting, "fit", lambda model, *_, **__: model)
    with pytest.raises(ValueError, match=f"{told} the model is not fitted.*fill gaps"):
        fitted(found, ON_DASK, X, {}, is_checked=False)
    known = fitted(found, X, X, {"workers": 1}, is_checked=True)
    assert known == "the ledger", "scikit-learn has looked at arrays before"
    assert fitted(Trained([0.5], []), ON_DASK, X, {}, is_checked=False) == "the ledger"


def test_a_fit_waits():
    with pytest.raises(ValueError, match=r"wait=False is of dt\.fit"):
        fitted(network(), ON_DASK, X, {"wait": False}, is_checked=False)


def test_a_model_that_cannot_be_trained_is_refused_before_anything_starts():
    def unread(block):
        raise AssertionError("the labels were looked at")

    x, y = ON_DASK, ON_DASK[:, 0].map_blocks(unread, meta=np.empty(0, int))
    bare = network("bare")
    for kind in (KerasClassifier, KerasRegressor, KerasTransformer):
        with pytest.raises(ValueError, match=r"^Model 'bare' is not compiled\. Call model\.compile\(optimizer, loss\)"):
            kind(bare).fit(x, y)
    with pytest.raises(ValueError, match=r"^Model 'bare' is not compiled"):
        KerasRegressor(lambda **_: bare).fit(X, X[:, 0])
    bare.compile("adam")
    with pytest.raises(ValueError, match=r"^Model 'bare' is compiled without a loss"):
        KerasRegressor(bare).fit(X, X[:, 0])
    with pytest.raises(TypeError, match=r"^model is a NoneType; pass a compiled keras\.Model, or a function"):
        KerasRegressor(lambda **_: None).fit(X, X[:, 0])
