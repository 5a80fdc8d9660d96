"""Steps on torch leave a model, its modules and the rows as they were."""

from __future__ import annotations

import os

import pytest

if os.environ.get("KERAS_BACKEND") != "torch":
    pytest.skip("in a process of its own: KERAS_BACKEND=torch", allow_module_level=True)

import keras
import numpy as np
import torch
from keras import layers

from dask_train.predicting.server.keras_torch import make

pytestmark = pytest.mark.backends

X = np.random.default_rng(0).normal(size=(6, 3)).astype("f4")
Y = X[:, :1]


class Noted(torch.nn.Module):
    """Notes how it is called."""

    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(()))
        self.seen = []

    def forward(self, x):
        self.seen.append((self.training, torch.is_grad_enabled()))
        return x * self.scale


def model_of(*more, **compiled):
    model = keras.Sequential([layers.Input((3,)), *more, layers.Dense(2), layers.Dropout(0.5), layers.Dense(1)])
    model.compile("sgd", "mse", metrics=["mae"], **compiled)
    return model


def packed(columns):
    return (*columns, None)


@pytest.fixture
def compiled(monkeypatch):
    """The steps that torch would have compiled."""
    found = []
    monkeypatch.setattr(torch, "compile", lambda step: found.append(step.__name__) or step)
    return found


@pytest.mark.parametrize("eagerly", [True, False])
def test_predictions_are_keras_own_and_dropout_drops_nothing(eagerly):
    model = model_of()
    found = make().predicting(model, eagerly=eagerly)(X)
    assert not found.requires_grad
    np.testing.assert_allclose(found, model.predict(X, verbose=0), rtol=1e-5, atol=1e-6)


def test_inputs_keep_their_structure():
    a, b = layers.Input((3,), name="a"), layers.Input((3,), name="b")
    model = keras.Model({"a": a, "b": b}, {"sum": layers.Add()([a, b])})
    found = make().predicting(model, eagerly=False)({"b": X, "a": 10 * X})
    np.testing.assert_allclose(found["sum"], 11 * X, rtol=1e-6)


def test_modules_evaluate_without_gradients_and_are_afterwards_in_the_mode_in_which_they_were():
    noted = Noted()
    model = model_of(layers.TorchModuleWrapper(noted))
    for layer in model.layers:
        layer.train()
    model.layers[-1].eval()
    parts = [part for layer in model.layers for part in layer.modules()]
    before = [part.training for part in parts]
    noted.seen.clear()
    make().predicting(model, eagerly=False)(X)
    make().testing(model, packed, [X, Y])([X, Y])
    assert set(noted.seen) == {(False, False)}
    assert [part.training for part in parts] == before
    assert noted.training


def test_they_are_so_also_where_a_step_fails():
    noted = Noted()
    model = model_of(layers.TorchModuleWrapper(noted))
    noted.train()
    noted.scale = None
    with pytest.raises(Exception, match="NoneType"):
        make().predicting(model, eagerly=False)(X)
    assert noted.training
    assert model.training


def test_what_writes_to_its_inputs_writes_to_a_copy():
    class Writing(torch.nn.Module):
        def forward(self, x):
            return x.mul_(0)

    model = keras.Sequential([layers.Input((3,)), layers.TorchModuleWrapper(Writing())])
    rows = X.copy()
    rows.flags.writeable = False  # shared memory that others read
    assert not make().predicting(model, eagerly=False)(rows).any()
    assert np.array_equal(rows, X)


def test_metrics_count_as_in_keras_own_loop():
    model = model_of()
    wanted = model.evaluate(X, Y, batch_size=3, verbose=0, return_dict=True)
    model.reset_metrics()
    step = make().testing(model, packed, [X[:3], Y[:3]])
    step([X[:3], Y[:3]])
    logs = step([X[3:], Y[3:]])
    assert {name: float(value) for name, value in logs.items()} == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("how", "eagerly", "steps"),
    [
        ({"jit_compile": True}, False, ["predict_step", "test_step"]),
        ({"jit_compile": True}, True, ["test_step"]),
        ({"jit_compile": True, "run_eagerly": True}, False, []),
        ({"jit_compile": False}, False, []),
        ({}, False, []),
    ],
)
def test_steps_are_compiled_where_the_model_asks_for_it(compiled, how, eagerly, steps):
    model = model_of(**{name: how[name] for name in how if name != "run_eagerly"})
    model.run_eagerly = how.get("run_eagerly", False)
    make().predicting(model, eagerly=eagerly)(X)
    make().testing(model, packed, [X, Y])([X, Y])
    assert compiled == steps


def test_threads_and_random_numbers_are_torchs_own():
    before, state = torch.get_num_threads(), torch.get_rng_state()
    try:
        make().take_threads(before + 1)
        assert torch.get_num_threads() == before + 1
        drawn = []
        for number in (1, 1, 2):
            make().seed(number)
            drawn.append(torch.rand(3).tolist())
        assert drawn[0] == drawn[1] != drawn[2]
    finally:
        torch.set_num_threads(before)
        torch.set_rng_state(state)
