"""Tensors, torch modules, Keras models and boosters: the same in each process, another one for other contents."""

from __future__ import annotations

import copy
import io
import json
import os
import runpy
import subprocess
import sys

import keras
import numpy as np
import pytest
import torch
from torch.nn.utils import parametrizations

from dask_train.identity.digest import digest


class Net(torch.nn.Module):
    def __init__(self, rate=1.0):
        super().__init__()
        self.line, self.rate = torch.nn.Linear(3, 2), rate
        torch.nn.init.ones_(self.line.weight)
        torch.nn.init.zeros_(self.line.bias)
        self.register_buffer("seen", torch.zeros(2))

    def forward(self, x):
        return self.line(x) * self.rate


def marked(**marks):
    """A tensor with attributes of the user's own, which travel with it."""
    tensor = torch.nn.Parameter(torch.ones(2))
    vars(tensor).update(marks)
    return tensor


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.arange(6).reshape(2, 3),
        lambda: torch.ones(3, dtype=torch.bfloat16),
        lambda: torch.tensor(1.5),
        lambda: torch.empty(0, 3),
        lambda: torch.nn.Parameter(torch.ones(2)),
        lambda: marked(scale=2.0, group="bias"),
        lambda: torch.eye(3).to_sparse(),
        lambda: torch.ones(2, 3).t(),
        Net,
        lambda: parametrizations.spectral_norm(Net().line.requires_grad_(False)).eval(),
    ],
)
def test_what_is_equal_has_the_same(make):
    torch.manual_seed(0)
    one = digest(make())
    torch.manual_seed(0)
    assert digest(make()) == one


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (torch.ones(2), torch.zeros(2)),
        (torch.ones(2), torch.ones(2, dtype=torch.float64)),
        (torch.ones(2), torch.ones(1, 2)),
        (torch.ones(2), torch.nn.Parameter(torch.ones(2))),
        (marked(), marked(scale=2.0)),
        (marked(scale=2.0), marked(scale=3.0)),
        (Net(1.0), Net(2.0)),
        (torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Tanh()), torch.nn.Sequential(torch.nn.Tanh(), torch.nn.ReLU())),
    ],
)
def test_what_differs_has_another(one, other):
    assert digest(one) != digest(other)


def test_the_order_of_a_tensor_s_attributes_and_marks_of_torch_compile_count_for_nothing():
    marks = {"group": "bias", "scale": 2.0, "_dynamo_static_input_type": "unguarded"}
    assert digest(marked(**marks)) == digest(marked(scale=2.0, group="bias"))


def test_a_torch_module_is_the_same_in_training_and_after_it_was_saved():
    net = Net()
    before = digest(net)
    assert digest(net.eval()) == before
    file = io.BytesIO()
    torch.save(net.state_dict(), file)
    file.seek(0)
    again = Net()
    torch.nn.init.zeros_(again.line.weight)
    assert digest(again) != before
    again.load_state_dict(torch.load(file))
    assert digest(again) == digest(copy.deepcopy(net)) == before


def test_hooks_of_a_torch_module_count_and_their_numbers_do_not():
    def hooked(hook):
        net = Net()
        net.register_forward_hook(hook)
        return digest(net)

    def double(module, x, y):
        return 2 * y

    one = hooked(double)
    assert one == hooked(double), "of which torch has numbered the second otherwise"
    assert one != digest(Net())
    assert one != hooked(lambda module, x, y: 3 * y)


def keras_model(units=2, activation="relu", value=1.0):
    model = keras.Sequential(
        [keras.Input((3,), name="x"), keras.layers.Dense(units, activation=activation, name="dense")], name="net"
    )
    model.set_weights([np.full_like(weights, value) for weights in model.get_weights()])
    return model


def test_keras_models_by_config_weights_and_functions():
    one = digest(keras_model())
    assert one == digest(keras_model())
    others = [{"value": 2.0}, {"units": 3}, {"activation": "tanh"}, {"activation": lambda x: x + 1.0}]
    others.append({"activation": lambda x: x + 2.0})
    assert len({one, *(digest(keras_model(**other)) for other in others)}) == 1 + len(others)


def test_operations_of_a_keras_model_count_and_their_numbers_do_not():
    def model(wired):
        inputs = keras.Input((3,), name="x")
        return digest(keras.Model(inputs, wired(keras.ops.relu(inputs), keras.ops.tanh(inputs)), name="net"))

    def difference(one, other):
        return keras.ops.subtract(one, other)

    one = model(difference)
    assert one == model(difference), "of which Keras has numbered the operations otherwise"
    others = [lambda one, other: difference(other, one), lambda one, other: one + other, lambda one, other: one]
    assert len({one, *(model(other) for other in others)}) == 1 + len(others)


def test_keras_layers_that_functions_use():
    def using(scale):
        layer = keras.layers.Rescaling(scale, name="scale")
        return digest(lambda: layer)

    assert using(1.0) == using(1.0) != using(2.0)


def test_boosters_by_their_trees():
    xgboost, lightgbm = pytest.importorskip("xgboost"), pytest.importorskip("lightgbm")
    X = np.random.default_rng(0).normal(size=(100, 2))
    found = []
    for depth in (1, 1, 2):
        params = {"max_depth": depth, "nthread": 1}
        booster = xgboost.train(params, xgboost.DMatrix(X, X[:, 0] * X[:, 1]), 3)
        again = xgboost.Booster()
        again.load_model(booster.save_raw("ubj"))
        assert digest(again) == digest(booster)
        settings = {"max_depth": depth, "num_threads": 1, "verbose": -1}
        trees = lightgbm.train(settings, lightgbm.Dataset(X, X[:, 0] * X[:, 1]), 3)
        found.append((digest(booster), digest(trees)))
    assert found[0] == found[1]
    assert found[0][0] != found[2][0]
    assert found[0][1] != found[2][1]


SCRIPT = """
import json, sys
import keras, numpy as np, torch
from dask_train.identity.digest import digest
from dask_train.predicting.model import predictor

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = torch.nn.ModuleDict({"a": torch.nn.Linear(3, 2), "b": torch.nn.Linear(3, 2)})
        for parameter in self.parameters():
            torch.nn.init.constant_(parameter, WEIGHT)
    def forward(self, x):
        return self.parts["a"](x) + self.parts["b"](x)

class Twice(keras.layers.Layer):
    def call(self, x):
        return x * FACTOR

def keras_model(own):
    inputs = keras.Input((3,), name="x")
    dense = keras.layers.Dense(2, name="dense", activation=lambda x: x + FACTOR)
    outputs = dense(inputs) + dense(inputs)
    model = keras.Model(inputs, own(name="twice")(outputs) if own else outputs, name="net")
    model.set_weights([np.full_like(weights, WEIGHT) for weights in model.get_weights()])
    return model

import warnings
warnings.simplefilter("ignore", DeprecationWarning)
models = [Net(), torch.jit.trace(Net(), torch.ones(2, 3)), keras_model(None), keras_model(Twice)]
found = [predictor(model, method=None, meta=None, travels=True).value.token for model in models]
print("told", json.dumps(found + [digest(keras_model(Twice)), digest(lambda: models[2])]))
"""


def test_models_of_a_script_are_the_same_in_another_process(tmp_path, capsys):
    script = tmp_path / "script.py"

    def here(weight, factor):
        script.write_text(f"WEIGHT, FACTOR = {weight}, {factor}\n{SCRIPT}")
        runpy.run_path(str(script), run_name="__main__")
        return json.loads(capsys.readouterr().out.rpartition("told")[2])

    one, weights, code = here(1, 2), here(3, 2), here(1, 4)
    assert not set(one) & set(weights)
    assert [a == b for a, b in zip(one, code, strict=True)] == [True, True, False, False, False, False]
    # Without garbage collections, which would be a quarter of the time that imports take.
    script.write_text(f"WEIGHT, FACTOR = 1, 2; import gc; gc.disable()\n{SCRIPT}")
    environment = {**os.environ, "PYTHONHASHSEED": "7", "KERAS_BACKEND": keras.backend.backend()}
    done = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout.rpartition("told")[2]) == one
