"""Where the rows of ``fit`` come from, and what it returns."""

from __future__ import annotations

import dask.array as da
import dask.dataframe as dd
import keras
import numpy as np
import pandas as pd
import pytest
from keras import layers

import dask_train as dt

ROWS = 200


def made():
    keras.utils.set_random_seed(3)
    model = keras.Sequential([layers.Input((3,)), layers.Dense(4, activation="tanh"), layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.1), "mse", metrics=["mae"])
    return model


def rows():
    random = np.random.default_rng(0)
    x = random.normal(size=(ROWS, 3)).astype("f4")
    return x, x.sum(1)


@pytest.fixture(scope="module")
def alone():
    """What one process makes of the same rows."""
    model, (x, y) = made(), rows()
    return model.fit(x, y, batch_size=32, epochs=2, shuffle=False, validation_split=0.2, verbose=0), model


def check(result, model, alone, epochs=2):
    history, wanted = alone
    for found, expected in zip(model.get_weights(), wanted.get_weights(), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-6)
    for name, values in result.history.items():
        np.testing.assert_allclose(values, history.history[name], rtol=1e-4, err_msg=name)
    assert result.ledger.trained == epochs * 160
    assert model.history.history == result.history if hasattr(model, "history") else True


def test_a_frame(client, alone):
    x, y = rows()
    frame = pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "c": x[:, 2], "late": y})
    train, held_out = dd.from_pandas(frame[:160], npartitions=3), dd.from_pandas(frame[160:], npartitions=1)
    model = made()
    result = dt.fit(
        model,
        train,
        features=["a", "b", "c"],
        label="late",
        validation_data=held_out,
        epochs=2,
        batch_size=32,
        shuffle=False,
        workers=2,
        client=client,
        verbose=0,
    )
    check(result, model, alone)
    assert set(result.history) == {"loss", "mae", "val_loss", "val_mae"}


def test_a_published_data_set_and_a_stream(client, alone):
    x, y = rows()
    dt.publish_dataset(da.from_array(x[:160], chunks=50), da.from_array(y[:160], chunks=50), name="rows", client=client)
    model = made()
    try:
        settings = {"epochs": 2, "batch_size": 32, "shuffle": False, "workers": 2, "client": client}
        check(dt.fit(model, dt.get_dataset("rows", client=client), **settings), model, alone)
    finally:
        dt.unpublish_dataset("rows", client=client)
    model = made()
    data = da.from_array(x[:160], chunks=(50, 3)), da.from_array(y[:160], chunks=50)
    check(dt.fit(model, *data, streaming=2, **settings), model, alone)


def test_a_split_of_arrays_and_a_model_without_weights(client, alone):
    keras.utils.set_random_seed(3)
    model = keras.Sequential([layers.Dense(4, activation="tanh"), layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.1), "mse", metrics=["mae"])
    run = dt.fit(
        model, *rows(), validation_split=0.2, epochs=2, batch_size=32, shuffle=False, client=client, wait=False
    )
    result = run.result()
    assert result.model is model
    assert [role["role"] for role in run.status()["roles"]] == ["worker", "worker"], "one a Dask worker"
    check(result, model, alone)


def test_a_large_model_goes_to_the_dask_workers_themselves(client):
    """What Dask warns of does not happen: 12 MB in the arguments of a task."""
    model = keras.Sequential([layers.Input((3,)), layers.Dense(1 << 20), layers.Dense(1, trainable=False)])
    model.compile(keras.optimizers.SGD(0.1), "mse")
    x, y = (da.from_array(array, chunks=10) for array in (rows()[0][:20], rows()[1][:20]))
    result = dt.fit(model, x, y, batch_size=20, workers=1)
    assert result.ledger.trained == 20
