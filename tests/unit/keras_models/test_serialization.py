"""Keras models taken apart and put together in one process: nothing of them is lost."""

from __future__ import annotations

import pickle
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what frameworks warn of when they are imported
    import keras
    import tensorflow as tf

from dask_train.cluster import keras_values
from dask_train.keras_models.serialization import load_parts, model_size_bytes, model_to_parts, parts_to_model
from dask_train.keras_models.state import is_built

keras_values.register()

RNG = np.random.default_rng(3)
X = RNG.normal(size=(48, 4)).astype("float32")
Y = X @ np.array([[1.0], [-2.0], [0.5], [3.0]], "float32")


def moved(model: Any) -> Any:
    """The model as another process gets it: the header pickled, the arrays read-only."""
    header, arrays = model_to_parts(model)
    received = [np.frombuffer(array.tobytes(), array.dtype).reshape(array.shape) for array in arrays]
    return parts_to_model(pickle.loads(pickle.dumps(header)), received)


def fit(model: Any, epochs: int = 1) -> dict[str, list[float]]:
    return model.fit(X, Y, batch_size=16, epochs=epochs, shuffle=False, verbose=0).history


def assert_same(one: Any, other: Any) -> None:
    for a, b in zip(state(one), state(other), strict=True):
        assert (a.dtype, a.trainable) == (b.dtype, b.trainable), (a.path, b.path)
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b), err_msg=f"{a.path} and {b.path}")


def state(model: Any) -> list[Any]:
    optimizers = [getattr(model, name, None) for name in ("optimizer", "other_optimizer")]
    return [*model.variables, *(v for optimizer in optimizers if optimizer is not None for v in optimizer.variables)]


class Weighing(keras.losses.Loss):
    """Weighs by a dict whose keys are no text."""

    def __init__(self, weights: dict[Any, Any], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.weights = weights

    def call(self, y_true: Any, y_pred: Any) -> Any:
        return self.weights.get(1, 1.0) * keras.ops.mean(keras.ops.square(y_true - y_pred), axis=-1)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "weights": self.weights}


class Placed(keras.layers.Layer):
    """Has a dict of numbers within a dict."""

    def __init__(self, places: dict[str, Any], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.places = places

    def call(self, x: Any) -> Any:
        return x * self.places["inner"][1]

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "places": dict(self.places)}


def test_keys_of_dicts_in_configs_are_what_they_were() -> None:
    weights = {0: 1.0, 1: 5.0, None: 2.0, 0.5: {True: [3]}, "1": 4.0}
    inner = {"inner": {1: 2.0, 2: {"a": {3: 4}}}, "none": {}}
    model = keras.Sequential([keras.Input((4,)), Placed(inner), keras.layers.Dense(1)])
    model.compile("sgd", Weighing(weights))
    other = moved(moved(model))
    assert other.loss.weights == weights
    assert other.layers[0].places == inner
    assert fit(other) == fit(model)


def test_a_dict_with_keys_that_no_config_can_hold_is_refused() -> None:
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", Weighing({(0, 1): 2.0}))
    with pytest.raises(TypeError, match="can't be sent: keys must be str, int, float, bool or None, not tuple"):
        model_to_parts(model)


class Scale(keras.layers.Layer):
    """Keras can't load it: its ``__init__`` does not take what every config has."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor
        self.supports_masking = True

    def build(self, shape: tuple[int, ...]) -> None:
        self.scale = self.add_weight(shape=(shape[-1],), name="scale", constraint=keras.constraints.MaxNorm(0.5))

    def call(self, x: Any) -> Any:
        return x * self.factor * self.scale


class Net(keras.Model):
    """Takes an argument and has no config; its layers are in containers, one of them twice."""

    def __init__(self, width: int, settings: dict[str, Any]) -> None:
        super().__init__()
        self.settings = settings
        self.first = [keras.layers.Dense(width, activation=lambda x: keras.ops.relu(x) * 2), Scale(3.0)]
        self.rest = {0: (keras.layers.Dropout(0.3), keras.layers.Dense(1))}
        self.twice = self.first[0]
        self.offset = self.add_weight(shape=(), name="offset")
        self.seen = keras.metrics.Mean()

    def call(self, x: Any, training: bool = False) -> Any:
        for layer in self.first:
            x = layer(x)
        dropout, last = self.rest[0]
        return last(dropout(x, training=training)) * self.settings["times"] + self.offset


class TwoOptimizers(keras.Model):
    """Compiles in its own way, as a GAN does, and uses one of its optimizers under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = keras.layers.Dense(1)

    def compile(self, optimizer: Any, other_optimizer: Any) -> None:
        super().compile(optimizer=optimizer, loss="mse")
        self.other_optimizer, self.mine = other_optimizer, [optimizer]

    def call(self, x: Any) -> Any:
        return self.dense(x)

    def train_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        for optimizer, variable in ((self.mine[0], self.dense.kernel), (self.other_optimizer, self.dense.bias)):
            error = keras.ops.sum(self(x) - y, axis=0)
            optimizer.apply([keras.ops.broadcast_to(error, variable.shape)], [variable])
        return {"error": keras.ops.sum(error)}


def scaled_error(truth: Any, prediction: Any) -> Any:
    return keras.ops.mean((truth - prediction) ** 2) * 3


def sequential() -> Any:
    normalization = keras.layers.Normalization()
    normalization.adapt(X)
    layers = [normalization, keras.layers.Dense(5), keras.layers.BatchNormalization(), keras.layers.Dropout(0.4)]
    model = keras.Sequential([keras.Input((4,)), *layers, Scale(2.0), keras.layers.Dense(1)])
    schedule = keras.optimizers.schedules.CosineDecay(0.1, 50)
    optimizer = keras.optimizers.AdamW(schedule, weight_decay=0.1, use_ema=True)
    optimizer.exclude_from_weight_decay(var_names=["bias"])
    model.compile(
        optimizer, loss=scaled_error, metrics=["mae", lambda truth, _: keras.ops.mean(truth)], run_eagerly=True
    )
    return model


def functional() -> Any:
    inner = keras.Sequential([keras.Input((4,)), keras.layers.Dense(6), keras.layers.Dropout(0.1)], name="inner")
    inner.compile("rmsprop", "mse", run_eagerly=True)
    inner.fit(X, np.zeros((48, 6)), verbose=0)
    inner.layers[0].trainable = False
    rows, scale = keras.Input((4,)), Scale(2.0)
    hidden = keras.layers.Lambda(lambda t: keras.ops.expand_dims(t, -1) * np.float32(2))(scale(scale(inner(rows))))
    model = keras.Model(rows, keras.layers.Dense(1, name="out")(keras.layers.Flatten()(hidden)))
    model.compile(keras.optimizers.SGD(0.001, momentum=0.9), loss={"out": "mse"}, run_eagerly=True)
    return model


def subclassed() -> Any:
    model = Net(5, settings={"times": 2.0})
    model.first[1].trainable = False
    model.compile("adam", scaled_error, metrics=[keras.metrics.MeanAbsoluteError()])
    return model


def two_optimizers() -> Any:
    model = TwoOptimizers()
    model.compile(keras.optimizers.Adam(0.1), keras.optimizers.SGD(0.001, momentum=0.5))
    model(X)
    model.optimizer.build([model.dense.kernel])
    model.other_optimizer.build([model.dense.bias])
    return model


def mixed_precision(**settings: Any) -> Any:
    keras.config.set_dtype_policy("mixed_float16")
    try:
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3), Scale(2.0), keras.layers.Dense(1)])
        model.compile("adam", "mse", run_eagerly=True, **settings)
    finally:
        keras.config.set_dtype_policy("float32")
    return model


def never_scaled() -> Any:
    return mixed_precision(auto_scale_loss=False)


@pytest.mark.parametrize(
    "make",
    [sequential, functional, subclassed, two_optimizers, mixed_precision, never_scaled],
    ids=lambda f: f.__name__,
)
def test_training_continues_as_if_the_model_had_not_moved(make: Callable[[], Any]) -> None:
    model = make()
    fit(model)
    once = moved(model)
    twice = moved(once)
    for other in (once, twice):
        assert type(other) is type(model)
        assert [layer.name for layer in other._flatten_layers()] == [layer.name for layer in model._flatten_layers()]
        assert [layer.trainable for layer in other._flatten_layers()] == [
            layer.trainable for layer in model._flatten_layers()
        ]
        assert type(other.optimizer) is type(model.optimizer)
        assert_same(model, other)
    assert fit(twice, epochs=2) == fit(model, epochs=2)
    assert_same(model, twice)


def test_functions_are_told_apart_that_have_one_name() -> None:
    def relu(x: Any) -> Any:
        return -x

    activations = [relu, keras.activations.relu, lambda x: x + 1, lambda x: x * 2, tf_like_function, keras.ops.sin]
    model = keras.Sequential([keras.layers.Activation(activation) for activation in activations])
    np.testing.assert_array_equal(np.asarray(moved(moved(model))(X)), np.asarray(model(X)))


def tf_like_function(x: Any) -> Any:
    return x - 3


def test_identities_inside_a_model_are_kept() -> None:
    other = moved(two_optimizers())
    assert other.mine[0] is other.optimizer
    model = subclassed()
    model(X)
    other = moved(model)
    assert other.twice is other.first[0]
    assert other.first[1].supports_masking
    assert len(other.variables) == len(model.variables)


def test_the_optimizer_of_an_inner_model_keeps_its_state() -> None:
    model = functional()
    inner, other = model.get_layer("inner"), moved(model).get_layer("inner")
    assert int(other.optimizer.iterations) == 2
    assert_same(inner, other)


def test_unbuilt_and_uncompiled_models_stay_so() -> None:
    plain = moved(keras.Sequential([keras.layers.Dense(3)]))
    assert (plain.built, plain.compiled) == (False, False)
    plain.build((None, 2))
    assert [tuple(v.shape) for v in plain.weights] == [(2, 3), (3,)]

    other = moved(subclassed())
    assert (other.built, other.compiled, other.optimizer.built) == (False, True, False)
    fit(other)

    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    other = moved(model)
    assert (other.built, other.compiled) == (True, False)
    assert_same(model, other)


def test_compilation_is_kept_and_metric_values_are_not() -> None:
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", ["mse"], loss_weights=[2.0], metrics=["mae"], steps_per_execution=2, run_eagerly=True)
    fit(model)
    other = moved(model)
    assert other.get_compile_config() == model.get_compile_config() | {
        "optimizer": other.get_compile_config()["optimizer"]
    }
    assert model.metrics[0].result() > 0
    assert other.metrics[0].result() == 0

    net = Net(5, settings={})
    net.seen.update_state(3.0)
    assert moved(net).seen.result() == 0


def test_what_an_earlier_compile_has_left_counts_as_for_keras() -> None:
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", ["mse"], loss_weights=[2.0], metrics=["mae"], weighted_metrics=["mse"])
    model.compile(keras.optimizers.SGD(0.001), run_eagerly=True)
    other = moved(model)
    history = fit(other)
    assert history == fit(model)
    assert set(history) == {"loss", "mae", "mse"}
    model.compile("sgd", "mae", metrics=["mse"], run_eagerly=True)
    other = moved(model)
    assert (history := fit(other)) == fit(model)
    assert set(history) == {"loss", "mse"}


@pytest.mark.parametrize("jit_compile", [False, True])
def test_arrays_are_snapshots_without_a_copy(jit_compile: bool) -> None:
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3), keras.layers.Dense(1)])
    model.compile("adam", "mse", jit_compile=jit_compile)
    fit(model)
    _, arrays = model_to_parts(model)
    again = model_to_parts(model)[1]
    kept = [array.copy() for array in arrays]
    addresses = [[array.__array_interface__["data"][0] for array in taken] for taken in (arrays, again)]
    assert addresses[0] == addresses[1]
    assert model_size_bytes(model) == sum(array.nbytes for array in arrays)

    fit(model)
    for array, before in zip(arrays, kept, strict=True):
        np.testing.assert_array_equal(array, before)
    changed = [(array != now).any() for array, now in zip(arrays, model_to_parts(model)[1], strict=True)]
    assert changed.count(False) == 1  # the learning rate


def test_dtypes_that_have_no_buffers_travel_as_integers() -> None:
    model = keras.Sequential([keras.Input((4,), dtype="bfloat16"), keras.layers.Dense(3, dtype="bfloat16")])
    assert {array.dtype.name for array in model_to_parts(model)[1]} == {"uint16"}
    assert_same(model, moved(model))


def test_double_precision_is_kept_where_the_other_side_has_single() -> None:
    keras.config.set_floatx("float64")
    try:
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        model.compile(keras.optimizers.Adam(0.1), "mse")
        fit(model)
        parts = model_to_parts(model)
    finally:
        keras.config.set_floatx("float32")
    other = parts_to_model(*parts)
    assert keras.config.floatx() == "float32"
    assert_same(model, other)
    assert_same(model, moved(other))
    assert float(other.optimizer.learning_rate.numpy()) == 0.1


def test_inner_layers_that_are_made_again_keep_their_precision() -> None:
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        model = keras.Sequential([keras.Input((4,)), Moody()])
    finally:
        keras.config.set_dtype_policy("float32")
    other = moved(model)
    assert other.layers[0].dense.dtype_policy.name == "mixed_bfloat16"
    assert keras.config.dtype_policy().name == "float32"


def test_layers_that_keep_files_keep_them() -> None:
    lookup = keras.layers.StringLookup()
    lookup.adapt(np.array(["b", "a", "b"]))
    model = keras.Sequential([keras.Input((1,), dtype="string"), lookup])
    assert moved(model).layers[0].get_vocabulary() == ["[UNK]", "b", "a"]


def test_a_layer_that_holds_a_lookup_has_its_weights() -> None:
    vectorize = keras.layers.TextVectorization(vocabulary=["a", "b"], output_sequence_length=2)
    model = keras.Sequential([keras.Input((), dtype="string"), vectorize, keras.layers.Embedding(5, 2)])
    assert is_built(model)
    assert is_built(moved(model))
    assert not is_built(keras.Sequential([vectorize, keras.layers.Embedding(5, 2)]))


def test_a_feature_space_keeps_what_it_has_seen() -> None:
    features = {"n": "float_normalized", "t": "string_categorical"}
    space = keras.utils.FeatureSpace(features, output_mode="concat")
    rows = {"n": tf.constant([1.0, 2.0, 4.0]), "t": tf.constant(["a", "b", "a"])}
    space.adapt(tf.data.Dataset.from_tensor_slices(rows))
    model = keras.Model(dict(space.get_inputs()), keras.layers.Dense(2)(space.get_encoded_features()))
    batch = {name: keras.ops.expand_dims(values, 1) for name, values in rows.items()}
    np.testing.assert_array_equal(moved(model)(batch), model(batch))


class OfFeatures(keras.Model):
    """Calls a feature space; one that gives a dict has it put together here."""

    def __init__(self, space: Any, **settings: Any) -> None:
        super().__init__(**settings)
        self.space, self.dense = space, keras.layers.Dense(2)

    def call(self, x: Any) -> Any:
        features = self.space(x)
        if isinstance(features, dict):
            features = keras.ops.concatenate([keras.ops.cast(each, "float32") for each in features.values()], axis=-1)
        return self.dense(features)


@pytest.mark.parametrize("mode", ["concat", "dict"])
@pytest.mark.parametrize("built", [True, False])
def test_a_feature_space_that_is_called_keeps_what_it_has_seen(mode: str, built: bool) -> None:
    features = {
        "n": keras.utils.FeatureSpace.float_discretized(num_bins=3),
        "t": "string_categorical",
        "k": "integer_categorical",
    }
    space = keras.utils.FeatureSpace(features, crosses=[("t", "k")], crossing_dim=8, output_mode=mode)
    rows = {"n": tf.constant([1.0, 2.0, 4.0]), "t": tf.constant(["a", "b", "a"]), "k": tf.constant([3, 4, 5])}
    space.adapt(tf.data.Dataset.from_tensor_slices(rows))
    model = OfFeatures(space)
    if built:
        model(rows)
    other = moved(model)
    for found, expected in zip(*(keras.tree.flatten(each.space(rows)) for each in (other, model)), strict=True):
        np.testing.assert_array_equal(found, expected)
    if built:
        np.testing.assert_array_equal(other(rows), model(rows))
    assert other(rows).shape == (3, 2)


def test_the_model_that_is_sent_is_left_as_it_was() -> None:
    model = subclassed()
    model(X)
    activation = model.first[0].activation
    before = {layer.name: set(vars(layer)) for layer in model._flatten_layers()}
    model_to_parts(model)
    assert {layer.name: set(vars(layer)) for layer in model._flatten_layers()} == before
    assert activation.__name__ == "<lambda>"


@pytest.mark.parametrize("mode", ["int8", "int4", "float8"])
def test_quantized_models_travel_without_the_optimizer_that_trained_what_was_replaced(mode: str) -> None:
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(6), keras.layers.Dense(1)], name="net")
    model.compile("adam", "mse", metrics=["mae"], run_eagerly=True)
    fit(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of layers without anything to quantize
        model.quantize(mode)
    header, arrays = model_to_parts(model, optimizers=False)
    other = parts_to_model(header, arrays)
    assert other.compiled
    np.testing.assert_array_equal(np.asarray(other(X)), np.asarray(model(X)))
    for a, b in zip(model.variables, other.variables, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
    assert {np.dtype(v.dtype).name for v in other.variables} & {"int8", "float32"}
    value = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(np.asarray(value(X)), np.asarray(model(X)))
    assert value.compiled
    assert type(value.optimizer) is keras.optimizers.Adam
    evaluated = [each.evaluate(X, Y, verbose=0, return_dict=True) for each in (value, model)]
    assert evaluated[0] == pytest.approx(evaluated[1])
    if mode != "float8":
        with pytest.raises(TypeError, match=r"Optimizer 'adam\S*' is built on '\S+kernel', which is not the model's"):
            model_to_parts(model)


def test_layers_with_lora_travel_with_their_adapters() -> None:
    inputs = keras.Input((4,))
    rows, attention = keras.layers.Reshape((2, 2))(inputs), keras.layers.MultiHeadAttention(1, 2)
    outputs = keras.layers.Dense(1)(keras.layers.Flatten()(attention(rows, rows)))
    model = keras.Model(inputs, outputs)
    attention.query_dense.enable_lora(1)  # of which the config of its block tells nothing
    model.layers[-1].enable_lora(2, lora_alpha=8)
    model.compile("adam", "mse", run_eagerly=True)
    fit(model)
    other = moved(model)
    assert_same(model, other)
    assert other.layers[-1].lora_alpha == 8
    assert fit(other) == fit(model)
    assert_same(model, other)


class Unpicklable(keras.layers.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()

    def call(self, x: Any) -> Any:
        return x


class Tied(keras.layers.Layer):
    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.kernel = layer.kernel

    def call(self, x: Any) -> Any:
        return x @ keras.ops.transpose(self.kernel)


def with_lock() -> Any:
    return keras.Sequential([Unpicklable()], name="net")


def with_two_of_a_name() -> Any:
    def make_class() -> type[Any]:
        class Twin(keras.layers.Layer):
            def call(self, x: Any) -> Any:
                return x

        return Twin

    return keras.Sequential([make_class()(), make_class()()], name="net")


def with_tied_weights() -> Any:
    dense = keras.layers.Dense(4)
    dense.build((None, 4))
    return keras.Sequential([keras.Input((4,)), dense, Tied(dense)], name="net")


def with_a_foreign_optimizer() -> Any:
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)], name="net")
    model.compile(keras.optimizers.SGD(name="sgd"), "mse")
    model.optimizer.build([keras.Variable(1.0, name="stranger")])
    return model


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (with_lock, r"unpicklable\.lock, which is <unlocked _thread.lock .*, can't be pickled"),
        (with_two_of_a_name, r"The model uses 2 different objects named 'Twin': .* Rename one of them\."),
        (with_tied_weights, r"Layer 'tied' shares '.*kernel' and has no config to tie it by\."),
        (with_a_foreign_optimizer, r"Optimizer 'sgd' is built on 'stranger', which is not the model's\."),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_cannot_be_sent_is_named(make: Callable[[], Any], why: str) -> None:
    with pytest.raises(TypeError, match=rf"Keras model 'net' of class keras\S* can't be sent: {why}"):
        model_to_parts(make())


class Moody(keras.layers.Layer):
    """Is made in one way here and in another there."""

    width = 2

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        if self.width < 0:
            raise RuntimeError("not today")
        if self.width > 0:
            self.dense = keras.layers.Dense(self.width)

    def build(self, shape: Any) -> None:
        if self.width > 0:
            self.dense.build(shape)

    def call(self, x: Any) -> Any:
        return self.dense(x) if self.width > 0 else x

    def get_config(self) -> dict[str, Any]:
        return super().get_config()


@pytest.fixture
def _moody_again() -> Iterator[None]:
    yield
    Moody.width = 2


@pytest.mark.usefixtures("_moody_again")
@pytest.mark.parametrize(
    ("width", "why"),
    [
        (-1, r"\S+Moody can't be made: RuntimeError: not today\."),
        (3, r"Variable 'net/\S*/kernel' had shape \[4, 2\], and has \[4, 3\] here\."),
        (0, r"In place of layer 'net/\S*/dense\S*' \(Dense, \S*\.dense\) there is nothing here\."),
    ],
)
def test_what_cannot_be_rebuilt_is_named(width: int, why: str) -> None:
    parts = model_to_parts(keras.Sequential([keras.Input((4,)), Moody()], name="net"))
    Moody.width = width
    with pytest.raises(TypeError, match=rf"Keras model 'net' of class \S+, sent by Keras \S+ can't be .*: {why}"):
        parts_to_model(*parts)


def test_a_module_that_is_missing_is_named() -> None:
    header, arrays = model_to_parts(keras.Sequential([keras.Input((4,))], name="net"))
    header["custom_objects"] = b"cno_such_models\nLayer\n."
    why = r"'net' .* no module 'no_such_models' here.*upload_file\('no_such_models.py'\)"
    with pytest.raises(TypeError, match=why):
        parts_to_model(header, arrays)


def test_a_model_that_compiles_in_its_own_way_and_has_a_config_says_what_it_loses() -> None:
    class Own(keras.Sequential):
        def compile(self, optimizer: Any) -> None:
            super().compile(optimizer=optimizer, loss="mse")

        def get_config(self) -> dict[str, Any]:
            return super().get_config()

    model = Own([keras.Input((4,)), keras.layers.Dense(1)], name="own")
    model.compile("sgd")
    with pytest.warns(UserWarning, match=r"'own' of class \S+Own travels uncompiled.*Override get_compile_config"):
        other = moved(model)
    assert not other.compiled
    for ours, theirs in zip(model.weights, other.weights, strict=True):
        np.testing.assert_array_equal(np.asarray(ours), np.asarray(theirs))


def test_what_was_set_after_compile_travels() -> None:
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    model.steps_per_execution, model.run_eagerly = 3, True
    other = moved(model)
    assert (other.steps_per_execution, other.run_eagerly) == (3, True)


def test_an_optimizer_in_an_attribute_that_does_not_travel_is_an_error() -> None:
    """Its state would be lost without a word."""
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    model.second = keras.optimizers.SGD(0.1)
    model.second.build(model.trainable_variables)
    with pytest.raises(TypeError, match=r"Optimizer SGD was held in 'second' of 'sequential\S*', where there is none"):
        moved(model)


class Counting(keras.Model):
    """Holds variables that Keras does not count among its weights."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.dense = keras.layers.Dense(1)
        self.scale = tf.Variable(1.0)
        self.hidden = {"steps": tf.Variable(0, dtype=tf.int64, trainable=False)}

    def call(self, x: Any) -> Any:
        return self.scale * self.dense(x)

    def train_step(self, data: Any) -> Any:
        self.scale.assign_add(0.5)
        self.hidden["steps"].assign_add(1)
        return super().train_step(data)


def test_variables_unknown_to_keras_travel_with_their_values_and_come_back():
    """As those of a raw ``tf.Variable`` that a step changes."""
    model = Counting()
    model.compile("sgd", "mse")
    fit(model)
    away = moved(model)
    assert (float(away.scale), int(away.hidden["steps"])) == (2.5, 3)
    np.testing.assert_array_equal(model.predict(X, verbose=0), away.predict(X, verbose=0))
    fit(away)
    load_parts(model, *model_to_parts(away))
    assert (float(model.scale), int(model.hidden["steps"])) == (4.0, 6)


def test_a_variable_that_was_made_in_training_and_has_no_place_here_is_told():
    model = Counting()
    model(X)
    away = moved(model)
    away.late = tf.Variable(1.0)
    with pytest.warns(UserWarning, match=r"was made while it was trained.*self\.add_weight"):
        load_parts(model, *model_to_parts(away))
