"""Optimizers, losses, metrics and others without a config of their own keep what they were made with."""

from __future__ import annotations

import pickle
import warnings
from collections import namedtuple
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what frameworks warn of when they are imported
    import keras

from dask_train.keras_models.serialization import model_to_parts, parts_to_model

X = np.random.default_rng(3).normal(size=(12, 4)).astype("float32")
Y = X @ np.array([[1.0], [-2.0], [0.5], [3.0]], "float32")


def moved(model: Any) -> Any:
    return parts_to_model(*pickle.loads(pickle.dumps(model_to_parts(model))))


class Own(keras.optimizers.SGD):
    """Spares variables by their names, and takes steps of its own."""

    def __init__(self, learning_rate: Any = 0.01, times: float = 1.0, spared: str = "nothing", **kwargs: Any) -> None:
        super().__init__(learning_rate, **kwargs)
        self.times, self.spared, self.by = times, spared, {"all": [times]}

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        if self.spared not in variable.name:
            super().update_step(gradient * self.by["all"][0] * self.times, variable, learning_rate)


class Halving(keras.optimizers.schedules.LearningRateSchedule):
    def __init__(self, first: float) -> None:
        self.first = first

    def __call__(self, step: Any) -> Any:
        return self.first * 0.5 ** keras.ops.cast(step, "float32")


class Scaled(keras.losses.Loss):
    def __init__(self, times: float = 1.0, function: Any = keras.ops.square) -> None:
        super().__init__()
        self.times, self.function = times, function

    def call(self, truth: Any, prediction: Any) -> Any:
        return keras.ops.mean(self.function(truth - prediction), axis=-1) * self.times


class Above(keras.metrics.Metric):
    """Has as many variables as it has thresholds, and a metric inside."""

    def __init__(self, thresholds: tuple[float, ...] = (0.0,), name: str = "above") -> None:
        super().__init__(name=name)
        self.thresholds = thresholds
        self.counts = [self.add_weight((), "zeros", name=f"count_{place}") for place, _ in enumerate(thresholds)]
        self.inner = keras.metrics.Mean()

    def update_state(self, truth: Any, prediction: Any, sample_weight: Any = None) -> None:
        for count, threshold in zip(self.counts, self.thresholds, strict=True):
            count.assign_add(keras.ops.sum(keras.ops.cast(prediction > threshold, "float32")))
        self.inner.update_state(truth)

    def result(self) -> Any:
        return sum(self.counts) + self.inner.result()


class Mild(keras.regularizers.Regularizer):
    def __init__(self, by: float = 0.0) -> None:
        self.by = by

    def __call__(self, kernel: Any) -> Any:
        return self.by * keras.ops.sum(keras.ops.abs(kernel))


class Ranged(keras.constraints.Constraint):
    limit = 1.0

    def __call__(self, kernel: Any) -> Any:
        return keras.ops.clip(kernel, -self.limit, self.limit)


class Inner(keras.layers.Layer):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.dense = keras.layers.Dense(3, kernel_regularizer=Mild(0.1))

    def call(self, x: Any) -> Any:
        return self.dense(x)


class Net(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = Inner(), keras.layers.Dense(1)

    def call(self, x: Any) -> Any:
        return self.last(self.first(x))


def compiled() -> Any:
    model = Net()
    model(X)
    offset = 2.0
    model.compile(
        Own(Halving(0.01), times=3.0, spared=f"{model.first.name}/", momentum=0.5),
        Scaled(2.0, lambda error: keras.ops.abs(error) + offset),
        metrics=[Above((0.1, 0.2, 0.3))],
    )
    return model


def constrained() -> Any:
    constraint = Ranged()
    constraint.limit = 0.1
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1, kernel_constraint=constraint)])
    model.compile(Own(times=9.0), "mse")
    return model


@pytest.mark.parametrize("make", [compiled, constrained])
def test_training_goes_on_with_the_settings_of_the_sender(make: Callable[[], Any]) -> None:
    model = make()
    model.fit(X, Y, shuffle=False, verbose=0)
    other = moved(moved(model))
    assert [variable.path for variable in other.variables] == [variable.path for variable in model.variables]
    assert [v.path for v in other.optimizer.variables] == [v.path for v in model.optimizer.variables]
    histories = [each.fit(X, Y, batch_size=4, shuffle=False, verbose=0).history for each in (model, other)]
    assert histories[0] == histories[1]
    for ours, theirs in zip(model.variables, other.variables, strict=True):
        np.testing.assert_array_equal(np.asarray(ours), np.asarray(theirs))


def test_what_was_set_later_travels_too() -> None:
    model = compiled()
    model.optimizer.times, model.loss.times = 7.0, 5.0
    other = moved(model)
    assert (other.optimizer.times, other.optimizer.by, other.loss.times) == (7.0, {"all": [3.0]}, 5.0)
    for each in (model.optimizer, model.loss):
        assert "get_config" not in vars(each), "left as it was"


class Pair(NamedTuple):
    """Layers by names."""

    first: Any
    second: Any = None

    @property
    def last(self) -> Any:
        return self.second or self.first


class Paired(keras.Model):
    def __init__(self, width: int, pair: Any) -> None:
        super().__init__()
        self.pair, self.widths, self.plain = pair, Pair(width, width), (keras.layers.Dense(1), width)

    def call(self, x: Any) -> Any:
        return self.plain[0](self.pair.last(self.pair.first(x))) * float(self.widths.first)


def test_a_tuple_with_names_keeps_them() -> None:
    Other = namedtuple("Other", ["first", "last"])
    for pair in (
        Pair(keras.layers.Dense(3), keras.layers.Dense(1)),
        Other(keras.layers.Dense(3), keras.layers.Dense(1)),
    ):
        model = Paired(2, pair)
        x = np.ones((2, 4), "f4")
        expected = model(x)
        there = parts_to_model(*model_to_parts(model))
        assert there.pair.__class__.__name__ == type(pair).__name__
        assert (there.widths, type(there.widths)) == (Pair(2, 2), Pair)
        assert there.plain.__class__ is tuple
        np.testing.assert_array_equal(there(x), expected)


class Closing(keras.layers.Layer):
    """Holds a function that uses a layer of its own."""

    def __init__(self, units: int) -> None:
        super().__init__()
        self.dense = keras.layers.Dense(units)
        self.twice = lambda x: self.dense(x) * 2

    def call(self, x: Any) -> Any:
        return self.twice(x)


class ClosingTold(Closing):
    """Can be made by what it was called with."""

    def __init__(self, units: int, **_: Any) -> None:
        super().__init__(units)


def test_functions_that_use_layers_of_the_model_get_no_copies_of_them() -> None:
    model = keras.Sequential([keras.Input((4,)), Closing(2)])
    with pytest.raises(TypeError, match=r"closing\S*\.twice, which is .*it uses the layer 'closing\S*' of the model"):
        moved(model)
    model = keras.Sequential([keras.Input((4,)), ClosingTold(2)])
    other = moved(model)
    other.layers[0].dense.kernel.assign(np.ones((4, 2)))
    np.testing.assert_allclose(np.asarray(other(X)), 2 * X @ np.ones((4, 2)), rtol=1e-5)
