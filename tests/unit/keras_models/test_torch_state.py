"""What changes in training on torch and is no variable of Keras' is as variables are."""

from __future__ import annotations

import os

import pytest

if os.environ.get("KERAS_BACKEND") != "torch":
    pytest.skip("in a process of its own: KERAS_BACKEND=torch", allow_module_level=True)

import gc
import weakref

import keras
import numpy as np
import torch
from keras import layers

from dask_train.keras_models.torch_state import seed_torch, torch_buffers, torch_modules, torch_random

pytestmark = pytest.mark.backends


@pytest.fixture(autouse=True)
def _random_numbers_go_on():
    state = torch.get_rng_state()
    yield
    torch.set_rng_state(state)


def wrapped(module):
    return layers.TorchModuleWrapper(module)


def model_of(*inside):
    return keras.Sequential([layers.Input((3,)), *inside, layers.Dense(1)])


def norm():
    return torch.nn.BatchNorm1d(3)


def test_buffers_of_all_modules_are_found_in_the_order_of_the_layers():
    first, inner = wrapped(norm()), wrapped(torch.nn.Sequential(torch.nn.Linear(3, 3), norm()))
    model = model_of(first, keras.Sequential([layers.Input((3,)), inner]))
    found = torch_buffers(model)
    averages = ["running_mean", "running_var", "num_batches_tracked"]
    assert [each.name for each in found] == [*averages, *[f"1.{name}" for name in averages]]
    assert [each.path for each in found[::3]] == [f"{first.path}/running_mean", f"{inner.path}/1.running_mean"]
    assert not any(each.trainable for each in found)


def test_models_without_modules_have_none():
    assert torch_buffers(model_of(layers.BatchNormalization())) == []


def test_modules_are_found_also_where_keras_registers_none():
    inside = norm()
    model = model_of(keras.Sequential([layers.Input((3,)), wrapped(torch.nn.Sequential(inside))]))
    found = torch_modules(model)
    assert inside not in list(model.modules())
    assert {id(each) for each in (model, model.layers[-1], inside)} <= {id(each) for each in found}


def test_they_are_the_same_objects_each_time_while_their_layer_lives():
    layer = wrapped(norm())
    model = model_of(layer)
    first, again = torch_buffers(model), torch_buffers(model)
    assert [id(each) for each in first] == [id(each) for each in again]
    held = weakref.ref(first[0])
    del first, again
    gc.collect()
    assert held() is not None, "while the layer lives"


def test_a_value_is_copied_into_the_tensor():
    module = norm()
    mean, _, count = torch_buffers(model_of(wrapped(module)))
    tensor = module.running_mean
    mean.assign([1.0, 2.0, 3.0])
    count.assign(np.array(7))
    assert module.running_mean is tensor
    assert (tensor.tolist(), module.num_batches_tracked.item()) == ([1, 2, 3], 7)
    assert [(mean.shape, mean.dtype), (count.shape, count.dtype)] == [((3,), "float32"), ((), "int64")]
    assert np.array(mean).tolist() == [1, 2, 3]
    assert np.array(mean, "f8").dtype == np.float64


def test_an_array_of_a_buffer_is_a_snapshot():
    module = norm()
    (mean, *_) = torch_buffers(model_of(wrapped(module)))
    before = np.asarray(mean)
    module.running_mean += 5
    assert before.tolist() == [0, 0, 0]


def test_random_numbers_go_on_from_a_state():
    (random,) = torch_random()
    state = np.array(random)
    assert (state.dtype.name, state.shape, random.trainable) == (random.dtype, random.shape, False)
    drawn = torch.rand(3).tolist()
    assert torch.rand(3).tolist() != drawn
    random.assign(state)
    assert torch.rand(3).tolist() == drawn
    random.assign(torch.from_numpy(state))
    assert torch.rand(3).tolist() == drawn


def drawn(state, seed, rank):
    seed_torch(state, seed, rank)
    return tuple(torch.rand(2).tolist())


def test_workers_draw_numbers_of_their_own_that_follow_from_the_seed():
    found = {(seed, rank): drawn(None, seed, rank) for seed in (1, 2) for rank in (0, 1, 2)}
    assert len(set(found.values())) == 6
    assert drawn(None, 2, 1) == found[2, 1]


def test_the_first_worker_goes_on_from_a_state_and_the_others_have_numbers_that_follow_from_it():
    state = np.array(torch_random()[0])
    wanted = tuple(torch.rand(2).tolist())
    assert drawn(state, 1, 0) == wanted
    torch.manual_seed(5)
    other_state = np.array(torch_random()[0])
    found = [drawn(state, 1, 1), drawn(state, 1, 2), drawn(other_state, 1, 1)]
    assert len({wanted, *found}) == 4
    assert drawn(state, 9, 1) == found[0], "of the state, whatever the seed"


def test_elsewhere_than_on_torch_there_is_nothing_of_it(monkeypatch):
    model = model_of(wrapped(norm()))
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    assert torch_buffers(model) == torch_random() == []
    before = torch.get_rng_state()
    seed_torch(None, 1, 0)
    assert torch.equal(torch.get_rng_state(), before)
