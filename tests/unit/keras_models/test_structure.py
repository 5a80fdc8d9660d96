"""Models of one's own arrive with all layers and variables, their values, names and order; or an error names them."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what frameworks warn of when they are imported
    import keras

from dask_train.cluster import keras_values
from dask_train.keras_models.serialization import load_parts, model_to_parts, parts_to_model
from dask_train.keras_models.structure import checksum, describe, first_difference

keras_values.register()

X = np.random.default_rng(3).normal(size=(12, 4)).astype("float32")
Y = X @ np.array([[1.0], [-2.0], [0.5], [3.0]], "float32")


def moved(model: Any) -> Any:
    return parts_to_model(*pickle.loads(pickle.dumps(model_to_parts(model))))


def assert_same(one: Any, other: Any) -> None:
    assert first_difference(describe(one), describe(other)) is None
    assert [layer.name for layer in one._flatten_layers()] == [layer.name for layer in other._flatten_layers()]
    for a, b in zip(one.variables, other.variables, strict=True):
        assert (a.path, a.trainable) == (b.path, b.trainable)
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b), err_msg=a.path)


class Block(keras.layers.Layer):
    """Has inner layers and no ``build``; Keras tells its config by what it was called with."""

    def __init__(self, units: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.units, self.inner, self.drop = units, keras.layers.Dense(units), keras.layers.Dropout(0.5)

    def call(self, x: Any, training: bool = False) -> Any:
        return self.drop(self.inner(x), training=training)


class Told(Block):
    """Tells its config, and so is made by it, and built by its call."""

    def get_config(self) -> dict[str, Any]:
        return super(Block, self).get_config() | {"units": self.units}


class Outer(keras.layers.Layer):
    """Nested blocks, in a list that is filled after other layers were made, and a dict."""

    def __init__(self, depth: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.depth, self.blocks, self.by_name = depth, [], {"norm": keras.layers.LayerNormalization()}
        self.head = keras.layers.Dense(4)
        for _ in range(depth):
            self.blocks.append(Told(4))

    def call(self, x: Any) -> Any:
        for block in self.blocks:
            x = block(x)
        return self.head(self.by_name["norm"](x))

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {"depth": self.depth}


class Untold(keras.layers.Layer):
    """As :class:`Outer`, and travels by value: the order of its layers is that in which they were made."""

    def __init__(self, depth: list[int]) -> None:
        super().__init__()
        self.blocks: list[Any] = []
        self.head = keras.layers.Dense(4)
        for units in depth:
            self.blocks.append(Block(units))

    def call(self, x: Any) -> Any:
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class Late(keras.layers.Layer):
    """Makes a weight and a layer when Keras calls it to build the other layer."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.scale: Any = None
        self.dense: Any = None
        self.first = keras.layers.Dense(5)

    def call(self, x: Any) -> Any:
        x = self.first(x)
        if self.scale is None:
            self.scale = self.add_weight(shape=(x.shape[-1],), initializer="random_normal", name="scale")
            self.dense = keras.layers.Dense(3)
        return self.dense(x * self.scale)


class Wide(keras.layers.Dense):
    """A layer of Keras with a setting and a weight of its own."""

    def __init__(self, units: int, times: float = 1.0) -> None:
        super().__init__(units)
        self.times = times

    def call(self, x: Any, training: Any = None) -> Any:
        return super().call(x, training=training) * self.times


class Net(keras.Model):
    def __init__(self, *parts: Any) -> None:
        super().__init__()
        self.parts = list(parts)

    def call(self, x: Any) -> Any:
        for part in self.parts:
            x = part(x)
        return x


class Steps(keras.Model):
    """Has no ``call``; its layers are called by its own steps."""

    def __init__(self, encoder: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.encoder, self.critic = encoder, Told(1)
        self.seeds = keras.random.SeedGenerator(7)

    def train_step(self, data: Any) -> dict[str, Any]:
        x, _ = data
        noise = keras.random.normal(keras.ops.shape(x), seed=self.seeds)
        return {"critic": keras.ops.mean(self.critic(self.encoder(x + noise)))}


def called(model: Any) -> Any:
    model(X)
    return model


def without_call() -> Any:
    model = Steps(keras.Sequential([keras.layers.Dense(3)]))
    model.compile("sgd")
    model.train_step((keras.ops.convert_to_tensor(X), None))
    return model


def functional_inside() -> Any:
    rows = keras.Input((4,))
    return called(Net(Block(4), keras.Model(rows, Told(3)(rows)), keras.Sequential([Told(2)])))


def frozen_inside() -> Any:
    model = called(Net(Told(4), Outer(2)))
    model.parts[0].inner.trainable = False
    model.parts[1].blocks[1].inner.kernel.trainable = False
    return model


def quantized_inside() -> Any:
    model = called(Net(Told(4)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy's, of how Keras reads its variable
        model.parts[0].inner.quantize("int8")
    return model


class Own(keras.Sequential):
    def __init__(self, times: float) -> None:
        super().__init__([keras.Input((4,)), keras.layers.Dense(2)])
        self.times, self.more = times, keras.layers.Dense(3)

    def call(self, x: Any, training: Any = None, mask: Any = None) -> Any:
        return self.more(super().call(x, training=training, mask=mask) * self.times)


MODELS = [
    lambda: called(Net(Block(4))),
    lambda: called(Net(Told(4), Block(2))),
    lambda: called(Net(Outer(2), Outer(1))),
    lambda: called(Net(Untold([3, 4]))),
    lambda: called(Net(Late())),
    lambda: called(keras.Sequential([keras.Input((4,)), Outer(1), Late(), Wide(3, 2.0)])),
    lambda: called(Net(Wide(3, times=4.0))),
    lambda: called(Own(3.0)),
    without_call,
    functional_inside,
    frozen_inside,
    quantized_inside,
]


@pytest.mark.parametrize("make", MODELS)
def test_all_layers_and_variables_arrive(make: Callable[[], Any]) -> None:
    model = make()
    model.name = "other"  # so that no name here can be what is made up there
    once = moved(model)
    twice = moved(once)
    assert_same(model, once)
    assert_same(model, twice)
    if type(model) is not Steps:
        np.testing.assert_array_equal(np.asarray(twice(X)), np.asarray(model(X)))
    assert_same(model, twice)  # nothing was made by the call


@pytest.mark.parametrize(
    "make",
    [
        lambda: Net(Told(4), Outer(1)),
        lambda: Net(Block(3)),
        lambda: keras.Sequential([keras.layers.Dense(2)]),
        lambda: Net(Late()),
    ],
)
def test_a_model_without_weights_takes_over_those_of_a_built_one(make: Callable[[], Any]) -> None:
    model = make()
    other = moved(model)
    assert not other.built
    for each in (model, other):
        each.compile("adam", "mse")
    other.fit(X, Y, verbose=0)
    held = list(model._flatten_layers())
    if any(isinstance(layer, Late) for layer in held):  # gets other layers
        held = [model]
    load_parts(model, *model_to_parts(other))
    assert {id(layer) for layer in held} <= {id(layer) for layer in model._flatten_layers()}
    assert_same(other, model)
    assert int(model.optimizer.iterations) == 1
    other.fit(X, Y, verbose=0, shuffle=False)
    model.fit(X, Y, verbose=0, shuffle=False)


class Forgetful(keras.layers.Layer):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.seen = self.add_weight(shape=(), initializer="zeros", trainable=False, name="seen")

    def build(self, _: Any) -> None:
        self.built = True

    def call(self, x: Any) -> Any:
        return x + self.seen

    def get_config(self) -> dict[str, Any]:
        return super().get_config()

    def save_own_variables(self, store: Any) -> None:
        pass

    def load_own_variables(self, store: Any) -> None:
        pass


class Shrinking(Told):
    """Is made otherwise there than here."""

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {"units": self.units - 1}


class Growing(Told):
    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {"units": -self.units}

    def __init__(self, units: int, **kwargs: Any) -> None:
        super().__init__(abs(units), **kwargs)
        if units < 0:
            self.inner = keras.Sequential([keras.layers.Dense(-units)])


@pytest.mark.parametrize(
    ("layer", "why"),
    [
        (Forgetful, r"Variable 'forgetful\S*/seen' has other values here than it had\..*save_own_variables"),
        (lambda: Shrinking(3), r"Variable 'net\S*/shrinking\S*/kernel' had shape \[4, 3\], and has \[4, 2\] here"),
        (
            lambda: Growing(3),
            r"In place of layer 'net\S*/growing\S*' \(Dense, model\.parts\[0\]\.inner\) there is a Sequential here",
        ),
    ],
)
def test_what_arrives_otherwise_is_named(layer: Callable[[], Any], why: str) -> None:
    model = called(Net(layer()))
    model.variables[0].assign(model.variables[0] + 1)
    with pytest.raises(TypeError, match=why):
        moved(model)


def test_a_damaged_array_is_named() -> None:
    model = called(Net(Block(4)))
    header, arrays = model_to_parts(model)
    arrays = [array.copy() for array in arrays]
    arrays[0].view("u1").reshape(-1)[5] ^= 1
    with pytest.raises(TypeError, match=rf"Variable '{model.variables[0].path}' has other values here than it had"):
        parts_to_model(header, arrays)


def test_checksums_see_any_change_and_the_order() -> None:
    for array in (np.arange(10, dtype="i1"), np.arange(300_003, dtype="f4"), np.ones((512, 512))):
        for place in (0, array.size // 2, array.size - 1):
            other = array.copy()
            other.flat[place] += 1
            assert checksum(other) != checksum(array)
    table = np.random.default_rng(0).normal(size=(1024, 1024))
    for other in (table.T, table[::-1], np.roll(table, 1)):
        assert checksum(np.ascontiguousarray(other)) != checksum(table)


def test_seeds_are_integers_of_the_backends_choice():
    there, here = (describe(keras.Sequential([keras.layers.Input((2,)), keras.layers.Dropout(0.5)])) for _ in range(2))
    (seed,) = there["variables"]
    seed["dtype"] = "int32" if seed["dtype"] != "int32" else "int64"
    assert first_difference(there, here) is None
    here["variables"][0]["is_seed"] = False
    assert "had dtype int" in first_difference(there, here)
