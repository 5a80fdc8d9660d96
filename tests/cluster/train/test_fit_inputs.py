"""Where the rows of ``fit`` come from, and what it returns."""

from __future__ import annotations

import dask
import dask.array as da
import dask.dataframe as dd
import keras
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
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
    told = model.history
    assert (told.history, told.epoch, told.model) == (result.history, result.epoch, model)
    assert {**told.params, "verbose": 0} == history.params


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


def test_a_worker_and_a_parameter_server(client, alone):
    x, y = rows()
    train = da.from_array(x[:160], chunks=(50, 3)), da.from_array(y[:160], chunks=50)
    model = made()
    result = dt.fit(
        model,
        *train,
        validation_data=(x[160:], y[160:]),
        epochs=2,
        batch_size=32,
        shuffle=False,
        workers=1,
        ps=1,
        client=client,
        verbose=0,
    )
    check(result, model, alone)


def of_names():
    keras.utils.set_random_seed(3)
    inputs = {"a": layers.Input((1,), name="a"), "rest": layers.Input((2,), name="rest")}
    hidden = layers.Dense(4, activation="tanh")(layers.Concatenate()([inputs["a"], inputs["rest"]]))
    model = keras.Model(inputs, [layers.Dense(1, name="sum")(hidden), layers.Dense(1, name="first")(hidden)])
    model.compile(keras.optimizers.SGD(0.1), ["mse", "mse"], loss_weights=[1.0, 0.5])
    return model


@pytest.mark.slow
def test_columns_by_name_for_inputs_targets_and_weights(client):
    x, y = rows()
    weights = np.linspace(0.5, 1.5, ROWS)
    frame = pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "c": x[:, 2], "late": y, "w": weights})
    settings = {"epochs": 2, "batch_size": 32, "shuffle": False, "verbose": 0}
    alone, model = of_names(), of_names()
    arrays = {"a": x[:, 0], "rest": x[:, 1:]}, [y, x[:, 1]]
    history = alone.fit(*arrays, sample_weight=weights, validation_data=(*arrays, weights), **settings).history
    columns = {"features": {"a": "a", "rest": ["b", "c"]}, "label": ["late", "b"], "sample_weight": "w"}
    with pytest.raises(ValueError, match="'b' of data is the label and one of the features too"):
        dt.fit(model, frame, **columns, client=client)
    frame["first"] = frame["b"]
    columns["label"] = ["late", "first"]
    data = dd.from_pandas(frame, npartitions=3)
    result = dt.fit(model, data, **columns, validation_data=frame, workers=2, client=client, **settings)
    for found, expected in zip(model.get_weights(), alone.get_weights(), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-6)
    assert set(result.history) == set(history)
    np.testing.assert_allclose(result.history["val_loss"], history["val_loss"], rtol=1e-4)


def test_a_model_without_weights_and_a_frame(client):
    class Block(layers.Layer):
        def __init__(self, units, **kwargs):
            super().__init__(**kwargs)
            self.inner = layers.Dense(units, activation="tanh")

        def call(self, x):
            return self.inner(x)

    x, y = rows()
    frame = dd.from_pandas(pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "c": x[:, 2], "late": y}), npartitions=3)
    model = keras.Sequential([Block(4), layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.1), "mse")
    held = list(model.layers)
    result = dt.fit(
        model, frame, features=["a", "b", "c"], label="late", validation_data=frame, workers=2, client=client, verbose=0
    )
    assert result.model is model
    assert [layer for layer in model.layers if layer in held] == held
    np.testing.assert_allclose(model.evaluate(x, y, verbose=0), result.history["val_loss"][-1], rtol=1e-5)


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


@pytest.fixture
def processes_end_soon():
    """Processes in which a model predicts end soon: the Dask workers are those of other tests, too."""
    with dask.config.set({"train.predict.idle": "100ms"}):
        yield


def test_a_published_data_set_is_predicted_and_evaluated(client, alone, processes_end_soon):
    (x, y), (_, model) = rows(), alone
    wanted = model.predict(x, verbose=0)
    frame = dd.from_pandas(pd.DataFrame(x, columns=list("abc")).assign(y=y), npartitions=2)
    published = {
        "rows": ([da.from_array(x, chunks=50), da.from_array(y, chunks=50)], {}),
        "frame": ([frame], {"features": list("abc"), "label": "y"}),
    }
    for name, (given, settings) in published.items():
        dt.publish_dataset(*given, name=name, client=client, **settings)
        try:
            data = dt.get_dataset(name, client=client)
            found = dt.predict(model, data, client=client).compute()
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
            scores = dt.evaluate(model, data, client=client, verbose=0)
            assert scores == pytest.approx(model.evaluate(x, y, return_dict=True, verbose=0), rel=1e-5)
            del data
        finally:
            dt.unpublish_dataset(name, client=client)


def test_a_split_of_arrays_and_a_model_without_weights(client, alone):
    keras.utils.set_random_seed(3)
    model = keras.Sequential([layers.Dense(4, activation="tanh"), layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.1), "mse", metrics=["mae"])
    run = dt.fit(
        model, *rows(), validation_split=0.2, epochs=2, batch_size=32, shuffle=False, client=client, wait=False
    )
    result = run.result()
    assert result.model is model
    assert [role["role"] for role in run.status()["roles"]] == ["worker"], "one a host"
    check(result, model, alone)


def test_a_large_model_goes_to_the_dask_workers_themselves(client):
    """What Dask warns of does not happen: 12 MB in the arguments of a task."""
    model = keras.Sequential([layers.Input((3,)), layers.Dense(1 << 20), layers.Dense(1, trainable=False)])
    model.compile(keras.optimizers.SGD(0.1), "mse")
    x, y = (da.from_array(array, chunks=10) for array in (rows()[0][:20], rows()[1][:20]))
    result = dt.fit(model, x, y, batch_size=20, workers=1)
    assert result.ledger.trained == 20


def looked_up():
    """Takes no 0: nothing may be made up."""
    keras.utils.set_random_seed(3)
    model = keras.Sequential(
        [
            layers.Input((2,), dtype="int64"),
            layers.IntegerLookup(vocabulary=[3, 5, 7], num_oov_indices=0),
            layers.Embedding(4, 2),
            layers.Flatten(),
            layers.Dense(1),
        ]
    )
    model.compile(keras.optimizers.SGD(0.1), "mse")
    return model


@pytest.mark.slow
@pytest.mark.parametrize("streaming", [1, pytest.param(False, marks=pytest.mark.nightly)])
def test_a_worker_without_rows_makes_none_up(client, streaming):
    """The last batch has one row for two workers, and so has the validation data."""
    x = np.random.default_rng(0).choice([3, 5, 7], (65, 2))
    y = x.sum(1) / 10.0
    settings = {"epochs": 2, "batch_size": 32, "shuffle": False, "verbose": 0}
    alone, model = looked_up(), looked_up()
    history = alone.fit(x, y, validation_data=(x[:1], y[:1]), **settings).history
    arrays = (da.from_array(x, chunks=(30, 2)), da.from_array(y, chunks=30))
    validation = tuple(da.from_array(array[:1], chunks=-1) for array in (x, y))
    result = dt.fit(
        model, *arrays, validation_data=validation, workers=2, streaming=streaming, client=client, **settings
    )
    for found, expected in zip(model.get_weights(), alone.get_weights(), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
    for name, values in result.history.items():
        np.testing.assert_allclose(values, history[name], rtol=1e-4, err_msg=name)


class Stepped(keras.Model):
    """Has a step of its own, and no ``call``; the inner model makes its weights in it."""

    def __init__(self, inner, **settings):
        super().__init__(**settings)
        self.inner = inner
        self.tracker = keras.metrics.Mean(name="loss")

    @property
    def metrics(self):
        return [self.tracker]

    def train_step(self, data):
        with tf.GradientTape() as tape:
            loss = keras.ops.mean(keras.ops.square(self.inner(data)))
        self.optimizer.apply(tape.gradient(loss, self.trainable_weights), self.trainable_weights)
        self.tracker.update_state(loss)
        return {"loss": self.tracker.result()}


def stepped():
    keras.utils.set_random_seed(3)
    model = Stepped(keras.Sequential([layers.Dense(4, activation="tanh"), layers.Dense(1)]))
    model.compile(keras.optimizers.SGD(0.1))
    return model


def test_a_model_without_call_is_trained(client):
    x, _ = rows()
    settings = {"epochs": 2, "batch_size": 50, "shuffle": False, "verbose": 0}
    alone, model = stepped(), stepped()
    history = alone.fit(x, **settings).history
    result = dt.fit(model, da.from_array(x, chunks=(60, 3)), workers=2, client=client, **settings)
    assert result.model is model
    for found, expected in zip(model.get_weights(), alone.get_weights(), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(result.history["loss"], history["loss"], rtol=1e-5)


WORDS = ["the cat", "a dog", "", "grüne Katzen", "the very long tale of a dog that saw the cat" * 20]


def of_text():
    keras.utils.set_random_seed(3)
    vectorize = layers.TextVectorization(output_sequence_length=3)
    vectorize.adapt(WORDS)
    text, kind = layers.Input((), dtype="string", name="text"), layers.Input((1,), dtype="string", name="kind")
    words = layers.GlobalAveragePooling1D()(layers.Embedding(30, 4)(vectorize(text)))
    kinds = layers.StringLookup(vocabulary=["u", "v"], output_mode="one_hot")(kind)
    model = keras.Model({"text": text, "kind": kind}, layers.Dense(1)(layers.Concatenate()([words, kinds])))
    model.compile(keras.optimizers.SGD(0.1), "mse")
    return model


@pytest.fixture(scope="module")
def trained_on_text():
    """What one process makes of text."""
    random = np.random.default_rng(0)
    table = pd.DataFrame({"text": random.choice(WORDS, 101), "kind": random.choice(["u", "v", "other"], 101)})
    table["y"] = random.normal(size=101)
    model = of_text()
    inputs = {name: tf.constant(table[name].tolist()) for name in ("text", "kind")}
    batches = tf.data.Dataset.from_tensor_slices((inputs, table["y"].to_numpy())).batch(20)
    model.fit(batches, epochs=2, shuffle=False, verbose=0)
    return table, model


@pytest.mark.slow
@pytest.mark.parametrize(
    "how", ["frame", "stream", *(pytest.param(how, marks=pytest.mark.nightly) for how in ("arrays", "published"))]
)
def test_text_reaches_the_model(client, trained_on_text, how):
    table, alone = trained_on_text
    model = of_text()
    given = (dd.from_pandas(table, npartitions=4),)
    named = {"label": "y", "validation_data": table}
    if how in ("arrays", "stream"):
        arrays = [da.from_array(table[name].to_numpy(object), chunks=30) for name in table]
        given, named = ({"text": arrays[0], "kind": arrays[1]}, arrays[2].astype("f8")), {"streaming": how == "stream"}
    if how == "published":
        dt.publish_dataset(given[0], name="texts", client=client)
        given = (dt.get_dataset("texts", client=client),)
        named = {"features": {"text": "text", "kind": "kind"}, "label": "y"}
        check_published(given[0], table)
    settings = {"epochs": 2, "batch_size": 20, "shuffle": False, "workers": 2, "client": client, "verbose": 0}
    try:
        dt.fit(model, *given, **named, **settings)
    finally:
        if how == "published":
            dt.unpublish_dataset("texts", client=client)
    for found, expected in zip(model.get_weights(), alone.get_weights(), strict=True):
        if found.dtype.kind == "f":
            np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-6)


def check_published(data, table):
    assert data.to_numpy(features="text").tolist() == table["text"].tolist()
    assert data.to_numpy(shard=(1, 3))["text"].tolist() == table["text"].tolist()[33:67]
    batches = list(data.to_tf(batch_size=40, features="text"))
    assert [text.decode() for batch in batches for text in batch.numpy()] == table["text"].tolist()
    text = data.to_dask()["text"]
    assert (text.dtype, text.compute().tolist()) == (object, table["text"].tolist())
    with pytest.raises(dt.DataError, match="object can't all become torch tensors"):
        data.to_torch(features="text")
