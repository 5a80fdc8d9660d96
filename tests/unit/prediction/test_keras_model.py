"""Keras models for prediction: the same numbers as Keras' own loop, here and without a cluster."""

from __future__ import annotations

import pickle
import warnings
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest

import dask_train as dt
from dask_train.data.columns import Column
from dask_train.fit_roles.layout import Layout
from dask_train.prediction.keras_model import KerasRunner, described, open_parts, take_apart
from dask_train.prediction.values import Call

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what frameworks warn of when they are imported
    import keras

RNG = np.random.default_rng(4)
X = RNG.normal(size=(50, 6)).astype("f4")


class Doubled(keras.Model):
    """A model that predicts in a way of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = keras.layers.Dense(3)
        self.drop = keras.layers.Dropout(0.9)

    def call(self, x: Any, training: bool = False) -> Any:
        return self.drop(self.dense(x), training=training)

    def predict_step(self, data: Any) -> Any:
        return 2 * super().predict_step(data)


@pytest.fixture
def model() -> Any:
    layers = [keras.layers.Dense(8, activation="relu"), keras.layers.BatchNormalization(), keras.layers.Dense(2)]
    model = keras.Sequential([keras.Input((6,)), *layers])
    model.compile("adam", "mse", metrics=["mae"])
    model.fit(X, X[:, :2], verbose=0)
    return model


def test_in_batches_of_any_size_as_keras(model: Any) -> None:
    own = Doubled()
    own(X[:1])
    for each in (model, own):
        columns = (Column(dtype="<f4", row_shape=(6,)),)
        places, outputs = described(each, Layout.of_batch(1), columns)
        assert (places, outputs[0].dtype) == (0, "<f4")
        expected = each.predict(X, verbose=0)
        for batch_size in (1, 16, 50, 64):
            call = Call(
                verb="predict", layout=Layout.of_batch(1), columns=columns, outputs=outputs, batch_size=batch_size
            )
            out, beats = [outputs[0].empty(50)], []
            KerasRunner(each).predict(call, [X], out, lambda beats=beats: beats.append(1))
            np.testing.assert_allclose(out[0], expected, rtol=1e-4, atol=1e-5)
            assert len(beats) == -(-50 // batch_size)


def test_the_state_of_the_optimizer_stays_behind(model: Any) -> None:
    header, arrays = take_apart(model, compiled=True)
    assert sum(array.nbytes for array in arrays) < 1.5 * sum(w.nbytes for w in model.get_weights())
    opened = open_parts(pickle.dumps(header), arrays)
    np.testing.assert_allclose(opened.predict(X, verbose=0), model.predict(X, verbose=0), rtol=1e-5)
    assert opened.evaluate(X, X[:, :2], verbose=0) == pytest.approx(model.evaluate(X, X[:, :2], verbose=0))


def test_without_a_cluster_in_this_process(model: Any) -> None:
    x = da.from_array(X.astype("f8"), chunks=(20, 3))
    lazy = dt.predict(model, x)
    np.testing.assert_allclose(lazy.compute(scheduler="threads"), model.predict(X, verbose=0), rtol=1e-4, atol=1e-5)
    before = model.evaluate(X, X[:, :2], verbose=0, return_dict=True)
    assert dt.evaluate(model, x, X[:, :2].astype("f8")) == pytest.approx(before, abs=1e-6)
    after = {name: float(value) for name, value in model.get_metrics_result().items()}
    assert after == pytest.approx(before), "its own metrics are as they were"
    elsewhere = pickle.loads(pickle.dumps(lazy))
    with pytest.raises(TypeError, match=r"when there was no Dask client.*Make the distributed\.Client first"):
        elsewhere.compute(scheduler="threads")


@pytest.mark.filterwarnings("ignore:__array__ implementation")  # of Keras, as it saves
def test_a_file_is_the_one_that_was_seen(model: Any, tmp_path: Path) -> None:
    from dask_train.prediction.files import header_of, open_file, read_file

    model.save(tmp_path / "model.keras")
    url = f"file://{tmp_path}/model.keras"
    np.testing.assert_allclose(
        dt.predict(url, X).compute(scheduler="threads"), model.predict(X, verbose=0), rtol=1e-4, atol=1e-5
    )
    header = header_of(url, read_file(url, compiled=False)[1], compiled=False)
    open_file(header)
    model.layers[0].set_weights([weights + 1 for weights in model.layers[0].get_weights()])
    model.save(tmp_path / "model.keras")
    with pytest.raises(ValueError, match="has changed since the prediction was asked for"):
        open_file(header)
    with pytest.raises(ValueError, match=r"Model file .*none\.keras can't be read"):
        dt.predict(str(tmp_path / "none.keras"), X)


def test_what_does_not_fit_is_refused(model: Any) -> None:
    with pytest.raises(ValueError, match=r"does not fit model .*: it has rows of float32 \(5,\)"):
        dt.predict(model, X[:, :5])
    with pytest.raises(ValueError, match="has no weights yet, so each process would make its own"):
        dt.predict(keras.Sequential([keras.layers.Dense(2)]), X)
    with pytest.raises(ValueError, match="method='predict_proba' is for estimators"):
        dt.predict(model, X, method="predict_proba")
    with pytest.raises(ValueError, match="is not compiled"):
        dt.evaluate(keras.Sequential([keras.Input((6,)), keras.layers.Dense(2)]), X, X)
    with pytest.raises(ValueError, match=r"columns=\['a'\] names what a frame's prediction has"):
        dt.predict(model, X, columns=["a"])
