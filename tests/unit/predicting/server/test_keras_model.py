"""Keras models for prediction: the same numbers as Keras' own loop, here and without a cluster."""

from __future__ import annotations

import pickle
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

import dask_train as dt
from dask_train.data.columns import Column, Columns
from dask_train.predicting.model import predictor
from dask_train.predicting.server.keras_model import KerasRunner, described, open_parts, take_apart
from dask_train.predicting.server.values import Call

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what frameworks warn of when they are imported
    import keras

BACKEND = keras.backend.backend()  # test_keras_backends.py runs this file on the others, too
takes_text = pytest.mark.skipif(BACKEND != "tensorflow", reason="Keras takes text on TensorFlow alone")

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

    def predict_step(self, *given: Any) -> Any:  # on JAX of a state, too, which it returns
        made = super().predict_step(*given)
        return (2 * made[0], made[1]) if BACKEND == "jax" else 2 * made


class Plain(keras.Model):
    """A model whose ``call`` does not know of training."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = keras.layers.Dense(3)

    def call(self, inputs: Any) -> Any:
        return self.dense(inputs)


class Lying(Doubled):
    """A model that makes of real rows what it does not make of zeros."""

    def predict_step(self, *given: Any) -> Any:
        made = super().predict_step(*given)
        made, *state = made if BACKEND == "jax" else (made,)
        made = keras.ops.cast(made, "float32" if keras.ops.any(given[-1][0] != 0) else "int8")
        return (made, *state) if state else made


@pytest.fixture
def model() -> Any:
    layers = [keras.layers.Dense(8, activation="relu"), keras.layers.BatchNormalization(), keras.layers.Dense(2)]
    model = keras.Sequential([keras.Input((6,)), *layers])
    model.compile("adam", "mse", metrics=["mae"], run_eagerly=BACKEND == "tensorflow")  # tracing takes a second
    model.fit(X, X[:, :2], verbose=0)
    model.run_eagerly = False
    return model


def test_in_batches_of_any_size_as_keras(model: Any) -> None:
    own = Doubled()
    own(X[:1])
    for each in (model, own):
        columns = (Column(dtype="<f4", row_shape=(6,)),)
        places, outputs = described(each, Columns.of_batch(1, columns))
        assert (places, outputs[0].dtype) == (0, "<f4")
        expected = each.predict(X, verbose=0)
        for batch_size in (1, 16, 50, 64):
            call = Call(
                verb="predict", columns=Columns.of_batch(1).with_rows(columns), outputs=outputs, batch_size=batch_size
            )
            out, beats = [outputs[0].empty(50)], []
            KerasRunner(each).predict(call, [X], out, lambda beats=beats: beats.append(1))
            np.testing.assert_allclose(out[0], expected, rtol=1e-4, atol=1e-5)
            assert len(beats) == -(-50 // batch_size)


@pytest.mark.skipif(BACKEND == "torch", reason="torch compiles nothing")
def test_blocks_of_any_size_are_compiled_once() -> None:
    class Seen(keras.layers.Layer):
        shapes: ClassVar[list[Any]] = []

        def call(self, x: Any) -> Any:
            self.shapes.append(tuple(x.shape))
            return x + 1

    model = sequential((6,), Seen())
    column = Column(dtype="<f4", row_shape=(6,))
    call = Call(verb="predict", columns=Columns.of_batch(1).with_rows([column]), outputs=(column,), batch_size=16)
    runner = KerasRunner(model)
    Seen.shapes.clear()
    for num_rows in (1, 15, 16, 17, 50):
        out = [column.empty(num_rows)]
        runner.predict(call, [X[:num_rows]], out, lambda: None)
        np.testing.assert_array_equal(out[0], X[:num_rows] + 1)
    assert Seen.shapes == [(16, 6)]


class Centered(keras.layers.Layer):
    """Looks at the other rows of the batch."""

    def call(self, x: Any) -> Any:
        x = keras.ops.cast(x, "float32")
        return x - keras.ops.mean(x, axis=0, keepdims=True)


@pytest.mark.parametrize("kind", ["numbers", "counts", "both"])
def test_rows_that_a_model_compares_with_others_of_a_batch_are_compared_with_no_padding(kind: str) -> None:
    floats, counts = keras.Input((6,)), keras.Input((6,), dtype="int32")
    inputs = {"numbers": floats, "counts": counts, "both": [floats, counts]}[kind]
    model = keras.Model(inputs, Centered()(floats if kind == "numbers" else counts))
    numbers = np.arange(300, dtype="i4").reshape(50, 6)
    numbers[34] = 0  # the last row of the first block, as the padding that is tried
    x = {"numbers": X, "counts": numbers, "both": (X, numbers)}[kind]
    chunked = [da.from_array(each, chunks=((35, 1, 14), 6)) for each in (x if kind == "both" else (x,))]
    lazy = dt.predict(model, list(chunked) if kind == "both" else chunked[0], batch_size=16)
    parts = [np.arange(50)[start:stop] for start, stop in ((0, 16), (16, 32), (32, 35), (35, 36), (36, 50))]
    for _ in range(2):
        found = lazy.compute(scheduler="sync")
        for part in parts:
            alone = (X if kind == "numbers" else numbers)[part]
            np.testing.assert_allclose(found[part], alone - alone.mean(axis=0), atol=1e-4)


class Counting(keras.layers.Layer):
    """Keeps a statistic of the rows that it has seen."""

    def __init__(self) -> None:
        super().__init__()
        self.total = self.add_weight(shape=(), initializer="zeros", trainable=False)

    def call(self, x: Any) -> Any:
        self.total.assign(self.total + keras.ops.sum(x))
        return x * 1.0


def test_what_layers_keep_of_rows_is_that_of_real_rows_each_counted_once() -> None:
    layer = Counting()
    x = da.from_array(X, chunks=(20, 6))
    computed(dt.predict(sequential((6,), layer), x, batch_size=16))
    assert float(layer.total) == pytest.approx(X.sum(), abs=1e-3)
    inputs = keras.Input((6,))
    layer = keras.layers.BatchNormalization()
    model = keras.Model(inputs, layer(inputs, training=True))
    model.compile(jit_compile=False)
    expected = keras.models.clone_model(model)
    computed(dt.predict(model, X[:5], batch_size=16))
    expected.predict(X[:5], verbose=0)
    for one, other in zip(model.get_weights(), expected.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)


class Masked(keras.layers.Layer):
    """Leaves numbers out of the mean that are none, which so does not show padding of such."""

    def call(self, x: Any) -> Any:
        x = keras.ops.where(keras.ops.isnan(x), keras.ops.zeros_like(x), x)
        return x - keras.ops.mean(x, axis=0, keepdims=True)


def of_blocks(model: Any, *blocks: Any) -> list[Any]:
    """Return what comes of one block after the other."""
    x = da.from_array(np.concatenate(blocks), chunks=(tuple(map(len, blocks)), blocks[0].shape[1]))
    lazy = dt.predict(model, x, batch_size=16)
    return [computed(lazy.blocks[number]) for number in range(len(blocks))]


@pytest.mark.parametrize(("layer", "first"), [(Centered, np.nan), (Masked, np.nan), (Masked, 0)])
def test_a_batch_that_shows_nothing_of_padding_decides_nothing(layer: Any, first: float) -> None:
    class Summed(keras.layers.Layer):
        def call(self, x: Any) -> Any:
            return keras.ops.sum(x, axis=-1, keepdims=True)

    row = np.array([[first, 0, 0, 0, 0, 0]], "f4")
    shows_nothing, found = of_blocks(sequential((6,), Summed(), layer()), row, X[:3])
    assert shows_nothing.shape == (1, 1)
    sums = X[:3].sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found, sums - sums.mean(), atol=1e-5)


def test_numbers_of_classes_are_of_rows_without_padding() -> None:
    class Above(keras.layers.Layer):
        def call(self, x: Any) -> Any:
            return keras.ops.cast(keras.ops.argmax(x - keras.ops.mean(x, axis=0, keepdims=True), axis=1), "int32")

    blocks = np.array([[3, 0]], "f4"), np.array([[-1, 0], [1, 0], [1, 0], [3, 0]], "f4")
    assert [found.tolist() for found in of_blocks(sequential((2,), Above()), *blocks)] == [[0], [1, 0, 0, 0]]


@pytest.mark.skipif(BACKEND != "jax", reason="JAX compiles for each length")
@pytest.mark.parametrize("dtype", ["int32", "bool"])
def test_inputs_that_are_always_zero_are_compiled_once(dtype: str) -> None:
    class Seen(keras.layers.Layer):
        shapes: ClassVar[list[Any]] = []

        def call(self, x: Any) -> Any:
            self.shapes.append(tuple(x.shape))
            return keras.ops.cast(x, "float32")

    model = sequential((6,), Seen(), dtype=dtype)
    x = da.from_array(np.zeros((9, 6), dtype), chunks=((2, 3, 4), 6))
    Seen.shapes.clear()
    assert not dt.predict(model, x, batch_size=16).compute(scheduler="sync").any()
    assert [shape for shape in Seen.shapes if shape[0] > 2] == [(16, 6)]


@pytest.mark.skipif(BACKEND != "jax", reason="others have numbers of 64 bits")
def test_numbers_that_would_wrap_around_are_refused() -> None:
    model = sequential((1,), keras.layers.Rescaling(1.0))
    assert computed(dt.predict(model, np.array([[3]])))[0, 0] == 3
    with pytest.raises(ValueError, match=r"whole numbers from 3 to 4294967299, and JAX takes int32 in place of int64"):
        computed(dt.predict(model, np.array([[3], [3 + (1 << 32)]])))


def sequential(shape: Any, *layers: Any, **given: Any) -> Any:
    return keras.Sequential([keras.Input(shape, **given), *layers])


def computed(lazy: Any) -> Any:
    return lazy.compute(scheduler="threads")


def test_ranks_and_kinds_of_models_as_keras_takes_them() -> None:
    plain = Plain()
    plain(X[:1])
    for each, x in (
        (plain, X),
        (sequential((1,), keras.layers.Dense(2)), X[:, 0]),
        (sequential((6,), keras.layers.Dense(2)), X[:, :, None]),
        (sequential((6, 1), keras.layers.Flatten(), keras.layers.Dense(2)), X),
        (sequential((6,), keras.layers.Dense(2)), (X * 50).astype("i1")),
    ):
        lazy = dt.predict(each, da.from_array(x, chunks=(20, *x.shape[1:])), batch_size=16)
        np.testing.assert_allclose(computed(lazy), each.predict(x, verbose=0), rtol=1e-4, atol=1e-5)
    stateful = sequential((3, 2), keras.layers.LSTM(4, stateful=True), batch_size=5)
    with pytest.raises(ValueError, match=r"Layer 'lstm.*' of model .* is stateful"):
        dt.predict(stateful, np.zeros((10, 3, 2), "f4"), batch_size=5)


def test_no_rows_are_made_up() -> None:
    class Positive(keras.layers.Layer):
        def call(self, x: Any) -> Any:
            if hasattr(x, "numpy"):
                assert (x.numpy() > 0).all()
            return x

    model = sequential((6,), Positive())
    model.compile(run_eagerly=True)
    x = np.abs(X) + 1
    np.testing.assert_allclose(computed(dt.predict(model, x, batch_size=16)), x)


def test_what_is_random_depends_on_the_block_alone() -> None:
    class Noisy(keras.layers.Layer):
        def __init__(self, **others: Any) -> None:
            super().__init__(**others)
            self.seed_generator = keras.random.SeedGenerator(3)

        def call(self, x: Any) -> Any:
            return x + keras.random.normal(keras.ops.shape(x), seed=self.seed_generator)

    column = Column(dtype="<f4", row_shape=(6,))
    call = Call(verb="predict", columns=Columns.of_batch(1).with_rows([column]), outputs=(column,), batch_size=20)
    model = sequential((6,), Noisy())

    def made(runner: KerasRunner, block: int) -> list[float]:
        out = [column.empty(50)]
        runner.predict(replace(call, block_seed=block), [X], out, lambda: None)
        return out[0].ravel().tolist()

    one, other = KerasRunner(model), KerasRunner(sequential((6,), Noisy()))
    first, second = made(one, 1), made(one, 2)
    assert first != second
    assert (made(other, 2), made(other, 1)) == (second, first)


def test_a_block_that_breaks_what_was_told_is_an_error() -> None:
    lying = Lying()
    lying(X[:1])
    lying.compile(run_eagerly=True)
    with pytest.raises(ValueError, match="the model made float32, and int8 was told before"):
        computed(dt.predict(lying, X))


@takes_text
def test_text_reaches_models(tmp_path: Path) -> None:
    words = np.array(["the cat", "a dog", "the dog, café", ""] * 5)
    lookup = keras.layers.TextVectorization(output_sequence_length=3)
    lookup.adapt(words)
    inputs = keras.Input((), dtype="string")
    pooled = keras.layers.GlobalAveragePooling1D()(keras.layers.Embedding(20, 4)(lookup(inputs)))
    model = keras.Model(inputs, keras.layers.Dense(1)(pooled))
    expected = model.predict(keras.ops.convert_to_tensor(words.tolist()), verbose=0)
    for x in (words, words.astype(object), words.astype(np.dtypes.StringDType()), np.char.encode(words, "utf-8")):
        found = computed(dt.predict(model, da.from_array(x, chunks=7), batch_size=4))
        np.testing.assert_allclose(found, expected, rtol=1e-5)
    frame = dd.from_pandas(pd.DataFrame({"text": words, "number": np.arange(20)}), npartitions=3)
    np.testing.assert_allclose(computed(dt.predict(model, frame, features="text")), expected[:, 0], rtol=1e-5)
    np.testing.assert_allclose(computed(dt.predict(model, frame["text"])), expected[:, 0], rtol=1e-5)
    missing = words.astype(object)
    missing[9] = None
    with pytest.raises(TypeError, match=r"Row 2 of the block is missing. Drop such rows, or fill them"):
        computed(dt.predict(model, da.from_array(missing, chunks=7)))
    with pytest.raises(ValueError, match=r"it has rows of string"):
        dt.predict(sequential((1,), keras.layers.Dense(1)), words)


@takes_text
def test_columns_of_a_frame_go_to_inputs_by_their_names() -> None:
    lookup = keras.layers.StringLookup(vocabulary=["x", "y"], output_mode="one_hot")
    kind, place = keras.Input((1,), dtype="string", name="kind"), keras.Input((2,), name="place")
    joined = keras.layers.Concatenate()([lookup(kind), place])
    model = keras.Model({"kind": kind, "place": place}, keras.layers.Dense(1)(joined))
    table = pd.DataFrame({"lat": np.arange(6.0), "kind": list("xyzxyx"), "long": np.arange(6), "other": "o"})
    x = {"kind": keras.ops.convert_to_tensor(table[["kind"]].to_numpy(object)), "place": table[["long", "lat"]]}
    expected = model.predict({**x, "place": x["place"].to_numpy("f4")}, verbose=0)
    frame = dd.from_pandas(table, npartitions=2)
    lazy = dt.predict(model, frame, features={"kind": "kind", "place": ["long", "lat"]})
    np.testing.assert_allclose(computed(lazy), expected[:, 0], rtol=1e-4, atol=1e-5)
    one, two = keras.Input((1,), name="lat"), keras.Input((1,), name="long")
    by_name = keras.Model({"long": two, "lat": one}, keras.layers.Subtract()([one, two]))
    np.testing.assert_allclose(computed(dt.predict(by_name, frame)), 0)
    with pytest.raises(ValueError, match="x has no column 'kin'"):
        dt.predict(model, frame, features={"kind": "kin", "place": ["long", "lat"]})


def test_the_state_of_the_optimizer_stays_behind(model: Any) -> None:
    header, arrays = take_apart(model, compiled=True)
    assert sum(array.nbytes for array in arrays) < 1.5 * sum(w.nbytes for w in model.get_weights())
    opened = open_parts(pickle.dumps(header), arrays)
    np.testing.assert_allclose(opened.predict(X, verbose=0), model.predict(X, verbose=0), rtol=1e-5)
    assert opened.evaluate(X, X[:, :2], verbose=0) == pytest.approx(model.evaluate(X, X[:, :2], verbose=0))


def test_what_has_predicted_can_evaluate_too(model: Any) -> None:
    predicts, evaluates = (
        predictor(model, method=None, meta=None, travels=True, compiled=compiled).value for compiled in (None, True)
    )
    assert predicts.token == evaluates.token, "so one process does both"
    assert open_parts(predicts.header, predicts.arrays).compiled


def test_files_go_on_whatever_the_model_is_evaluated_by(model: Any, tmp_path: Path) -> None:
    x = da.from_array(X, chunks=(20, 3))
    dt.predict_to(tmp_path / "found.zarr", model, x)
    model.compile("sgd", "mae")
    dt.predict_to(tmp_path / "found.zarr", model, x)


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
    from dask_train.predicting.server.files import ModelFile, header_of, open_file, read_file

    model.save(tmp_path / "model.keras")
    url = f"file://{tmp_path}/model.keras"
    np.testing.assert_allclose(
        dt.predict(url, X).compute(scheduler="threads"), model.predict(X, verbose=0), rtol=1e-4, atol=1e-5
    )
    file = ModelFile(url)
    header = header_of(file, read_file(file, compiled=False)[1], compiled=False)
    open_file(header)
    model.layers[0].set_weights([weights + 1 for weights in model.layers[0].get_weights()])
    model.save(tmp_path / "model.keras")
    with pytest.raises(ValueError, match="has changed since the prediction was asked for"):
        open_file(header)
    with pytest.raises(ValueError, match=r"Model file .*none\.keras can't be read"):
        dt.predict(str(tmp_path / "none.keras"), X)
    whole = (tmp_path / "model.keras").read_bytes()
    for name, data in (("cut", whole[:1000]), ("empty", b""), ("text", b"hello")):
        (tmp_path / f"{name}.keras").write_bytes(data)
        with pytest.raises(ValueError, match=rf"{name}\.keras \({len(data)} bytes\) is cut off"):
            dt.predict(tmp_path / f"{name}.keras", X)
    at = whole.index(b"model.weights.h5") + 1000
    (tmp_path / "flipped.keras").write_bytes(whole[:at] + bytes([whole[at] ^ 255]) + whole[at + 1 :])
    with pytest.raises(ValueError, match=r"flipped\.keras \(\d+ bytes\) is damaged at 'model\.weights\.h5'"):
        dt.predict(tmp_path / "flipped.keras", X)


def test_files_that_others_open_are_told_how(tmp_path: Path) -> None:
    for name, way in (("a.onnx", "onnxruntime"), ("a.pt2", "torch.export.load"), ("a.h5", "Open others yourself")):
        with pytest.raises(ValueError, match=rf"model is 'a\.\w+'; a model file is one .*{way}"):
            dt.predict(name, X)
    with pytest.raises(ValueError, match=r"saved_model\.load"):
        dt.predict(tmp_path, X)


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
