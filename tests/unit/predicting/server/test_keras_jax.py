"""Steps on JAX are compiled once, and the model's variables hold what they return."""

from __future__ import annotations

import os

import pytest

if os.environ.get("KERAS_BACKEND") != "jax":
    pytest.skip("in a process of its own: KERAS_BACKEND=jax", allow_module_level=True)

import keras
import numpy as np
from keras import layers

from dask_train.predicting.server.keras_jax import make

pytestmark = pytest.mark.backends

X = np.random.default_rng(0).normal(size=(6, 3)).astype("f4")
Y = X[:, :1]


class Counting(layers.Layer):
    """Counts its calls in a variable, and how often it is traced."""

    def __init__(self):
        super().__init__()
        self.calls = self.add_weight(shape=(), initializer="zeros", trainable=False, name="calls")
        self.idle = self.add_weight(shape=(), initializer="zeros", trainable=False, name="idle")
        self.traced = 0

    def call(self, x):
        self.traced += 1
        self.calls.assign(self.calls + 1)
        return x + 0 * self.calls


def model_of(*more, **compiled):
    model = keras.Sequential([layers.Input((3,)), *more, layers.Dense(2), layers.Dropout(0.5), layers.Dense(1)])
    model.compile("sgd", "mse", metrics=["mae"], **compiled)
    return model


def packed(columns):
    return (*columns, None)


@pytest.mark.parametrize("eagerly", [True, False])
def test_predictions_are_keras_own_and_dropout_drops_nothing(eagerly):
    model = model_of()
    found = make().predicting(model, eagerly=eagerly)(X)
    np.testing.assert_allclose(found, model.predict(X, verbose=0), rtol=1e-5, atol=1e-6)


def test_inputs_keep_their_structure():
    a, b = layers.Input((3,), name="a"), layers.Input((3,), name="b")
    model = keras.Model({"a": a, "b": b}, {"sum": layers.Add()([a, b])})
    found = make().predicting(model, eagerly=False)({"b": X, "a": 10 * X})
    np.testing.assert_allclose(found["sum"], 11 * X, rtol=1e-6)


@pytest.mark.parametrize(
    ("how", "eagerly", "is_compiled"),
    [
        ({}, False, True),
        ({}, True, False),
        ({"run_eagerly": True}, False, False),
        ({"jit_compile": False}, False, False),
    ],
)
def test_a_step_is_compiled_once_unless_the_model_or_who_asks_wants_none_of_it(how, eagerly, is_compiled):
    counting = Counting()
    run = make().predicting(model_of(counting, **how), eagerly=eagerly)
    counting.traced = 0
    for _ in range(3):
        run(X)
    assert counting.traced == (1 if is_compiled else 3)
    run(X[:2])
    assert counting.traced == (2 if is_compiled else 4), "another shape"


def test_variables_hold_what_a_step_has_made_of_them():
    counting = Counting()
    model = model_of(counting)
    before = float(counting.calls.value)
    idle, kernel = counting.idle.value, model.layers[1].kernel.value
    run = make().predicting(model, eagerly=False)
    run(X)
    run(X)
    assert float(counting.calls.value) == before + 2
    assert float(counting.idle.value) == float(idle)
    assert model.layers[1].kernel.value is kernel, "what is trained stays where it is"


def test_metrics_count_as_in_keras_own_loop_also_before_they_have_variables():
    model = model_of()
    step = make().testing(model, packed, [X[:3], Y[:3]])
    step([X[:3], Y[:3]])
    logs = step([X[3:], Y[3:]])
    found = {name: float(value) for name, value in logs.items()}
    assert model.get_metrics_result()["mae"] == pytest.approx(found["mae"]), "its variables have it"
    model.reset_metrics()
    assert found == pytest.approx(model.evaluate(X, Y, batch_size=3, verbose=0, return_dict=True))


def test_a_test_step_of_batches_of_other_sizes():
    model = model_of()
    step = make().testing(model, packed, [X[:4], Y[:4]])
    for at in (slice(0, 4), slice(4, 6)):
        logs = step([X[at], Y[at]])
    model.reset_metrics()
    wanted = model.evaluate(X, Y, batch_size=4, verbose=0, return_dict=True)
    assert {name: float(value) for name, value in logs.items()} == pytest.approx(wanted)


def test_threads_are_told_to_xla(monkeypatch):
    monkeypatch.setenv("NPROC", "7")
    make().take_threads(3)
    assert os.environ["NPROC"] == "3"


def test_random_numbers_are_those_of_keys():
    state = keras.random.SeedGenerator(1)
    before = np.array(state.state)
    make().seed(5)
    assert np.array_equal(np.array(state.state), before)
