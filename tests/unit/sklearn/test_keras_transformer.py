"""Networks as transformers: what they make of arrays, and lazily of Dask collections, is in the frames asked for."""

from __future__ import annotations

import keras
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import sklearn
from dask import array as da
from dask import dataframe as dd
from keras import layers
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from dask_train.sklearn import KerasTransformer, keras_transformer, on_dask

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(10, 3))
FRAME = pd.DataFrame(X, columns=list("abc"), index=np.arange(10) * 2)


def network(X, y):  # noqa: N803 - as Keras calls it
    model = keras.Sequential([layers.Input((X.shape[1],)), layers.Dense(2, "tanh")])
    model.compile("sgd", "mse", run_eagerly=True)
    return model


@pytest.fixture(scope="module")
def fitted():
    return KerasTransformer(network, fit_kwargs={"epochs": 1, "verbose": 0}).fit(FRAME, X[:, 0])


@pytest.fixture
def _predicted(monkeypatch):
    """In this process, lazily; as frames where columns are asked for, with the rows' index."""

    def predict(model, rows, *, columns=None):
        def made(block):
            found = np.asarray(model(np.asarray(block)))
            return found if columns is None else pd.DataFrame(found, block.index, columns)

        if columns is None:
            return rows.rechunk({1: -1}).map_blocks(made, dtype="f4", chunks=(rows.chunks[0], (2,)))
        return rows.map_partitions(made, meta=pd.DataFrame(columns=columns, dtype="f4"))

    monkeypatch.setattr(keras_transformer, "predict", predict)
    monkeypatch.setattr(on_dask, "predict", predict)


@pytest.mark.usefixtures("_predicted")
def test_arrays_and_frames_of_dask_are_made_lazily(fitted):
    wanted = fitted.transform(FRAME)
    table = dd.from_pandas(FRAME, npartitions=3)
    found = fitted.transform(table)
    assert isinstance(found, da.Array)
    np.testing.assert_allclose(found.compute(), wanted, rtol=1e-5)
    framed = clone(fitted).set_output(transform="pandas")
    vars(framed).update({name: value for name, value in vars(fitted).items() if name.endswith("_")})
    here, there = framed.transform(FRAME), framed.transform(table)
    assert isinstance(there, dd.DataFrame)
    pd.testing.assert_frame_equal(there.compute(scheduler="synchronous"), here, rtol=1e-5)
    assert here.columns.tolist() == ["kerastransformer0", "kerastransformer1"]


@pytest.mark.usefixtures("_predicted")
def test_frames_of_arrays_whose_features_lie_in_several_blocks():
    made = KerasTransformer(network, fit_kwargs={"epochs": 1, "verbose": 0}).fit(X, X[:, 0])
    wanted = made.transform(X)
    with sklearn.config_context(transform_output="pandas"):
        found = made.transform(da.from_array(X, chunks=(4, 2)))
        assert isinstance(found, dd.DataFrame)
        np.testing.assert_allclose(found.compute(scheduler="synchronous"), wanted, rtol=1e-5)
        with pytest.raises(ValueError, match="X has sparse partitions"):
            made.transform(da.from_array(X, chunks=(4, 3)).map_blocks(scipy.sparse.csr_array))


def test_frames_that_dask_has_not_are_refused(fitted):
    table = dd.from_pandas(FRAME, npartitions=3)
    polars = sklearn.config_context(transform_output="polars")
    with polars, pytest.raises(ValueError, match=r"set_output\(transform='polars'\) of a Dask collection"):
        fitted.transform(table)
    for output in ("default", "pandas"):
        with sklearn.config_context(transform_output=output):
            with pytest.raises(NotFittedError):
                clone(fitted).transform(table)
            with pytest.raises(ValueError, match="should match"):
                fitted.transform(table[list("cab")])


def test_frames_of_a_transformer():
    made = KerasTransformer(network, fit_kwargs={"epochs": 1, "verbose": 0}).set_output(transform="pandas")
    frame = made.fit_transform(FRAME, X[:, 0])
    assert isinstance(frame, pd.DataFrame)
    assert frame.index.tolist() == FRAME.index.tolist()
    assert isinstance(clone(made).fit(X, X[:, 0]).transform(X), pd.DataFrame)
    with pytest.raises(ValueError, match="requires y to be passed"):
        made.fit(X, None)
