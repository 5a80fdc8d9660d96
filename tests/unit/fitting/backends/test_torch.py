"""What replicas ask of torch."""

from __future__ import annotations

import os
from contextlib import nullcontext

import pytest

if os.environ.get("KERAS_BACKEND") != "torch":
    pytest.skip("in a process of its own: KERAS_BACKEND=torch", allow_module_level=True)

import keras
import numpy as np
import torch
from keras import layers

import dask_train as dt
from dask_train.data.columns import Column, Columns
from dask_train.fitting.backends.torch import TorchBackend, as_array, as_tensor
from dask_train.fitting.backends.tried_gathers import TriedGathers
from dask_train.fitting.checks import check_model
from dask_train.fitting.roles.gradients import RowFraction, _Summing
from dask_train.fitting.roles.models import build
from dask_train.fitting.roles.weights import Weights, value_of
from dask_train.keras_models.torch_state import torch_buffers

pytestmark = pytest.mark.backends


def compiled(**settings):
    model = keras.Sequential([layers.Input((3,)), layers.Dense(2)])
    model.compile("adam", "mse", metrics=["mae"], **settings)
    return model


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.int64])
def test_values_come_through_in_every_dtype(dtype):
    tensor = torch.tensor([1.5, -2.0]).to(dtype)
    (found,) = TorchBackend().on_host(lambda arrays: [2 * arrays[0]], [tensor])
    assert found.dtype == dtype
    torch.testing.assert_close(found, 2 * tensor)
    assert as_tensor(as_array(tensor)).dtype == dtype


def test_what_comes_from_the_host_may_be_written_to():
    shared = np.ones(3, np.float32)
    (found,) = TorchBackend().on_host(lambda _: [shared], [torch.zeros(3)])
    found.mul_(5)
    assert shared.tolist() == [1, 1, 1]


@pytest.mark.parametrize("most", [0, 1])
def test_a_step_that_takes_a_batch_but_not_its_rows_twice_is_refused(most):
    def tried(times):
        if times > most:
            raise RuntimeError(f"{times} times the rows")

    refused = pytest.raises(ValueError, match="not the same rows twice: RuntimeError: 2 times the rows")
    with refused if most else nullcontext():  # what is wrong in any case is seen when the step is taken
        TorchBackend().learn(tried, list, None, TriedGathers())


def test_sparse_gradients_are_slices_of_rows():
    table = torch.nn.Embedding(5, 2, sparse=True)
    table(torch.tensor([1, 3, 1])).sum().backward()
    backend, gradient = TorchBackend(), table.weight.grad
    (piece,) = backend.slices_of(gradient)
    assert (piece.indices.tolist(), piece.alike) == ([1, 3], False)
    torch.testing.assert_close(backend.sparse([piece], gradient).to_dense(), gradient.to_dense())
    assert backend.slices_of(torch.zeros(2)) == backend.slices_of(None) == []


@pytest.mark.parametrize("made", [keras.optimizers.Adam, lambda: keras.optimizers.SGD(0.1, momentum=0.9)])
def test_a_server_applies_as_keras_does(made):
    variables = [[keras.Variable(np.ones((4, 2))), keras.Variable(np.ones(3))] for _ in range(2)]
    gradients = [np.full((4, 2), 0.5, np.float32), np.arange(3, dtype=np.float32)]
    optimizers = [made(), made()]
    for optimizer, own in zip(optimizers, variables, strict=True):
        optimizer.build(own)
    apply = TorchBackend().applying(optimizers[1], variables[1], gradients)
    for _ in range(3):
        optimizers[0].apply([torch.tensor(one) for one in gradients], variables[0])
        apply([])
    pairs = zip(*([*one.variables, *own] for one, own in zip(optimizers, variables, strict=True)), strict=True)
    for one, other in pairs:
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("settings", "text"),
    [({"steps_per_execution": 2}, "steps_per_execution=2, and Keras on torch"), ({"jit_compile": True}, "jit_compile")],
)
def test_what_torch_can_not_do_is_refused(settings, text):
    with pytest.raises(ValueError, match=text):
        check_model(compiled(**settings))
    check_model(compiled())


def test_a_model_is_built_by_shapes_as_keras_fit_builds_it():
    model = keras.Sequential([layers.Dense(4), layers.Dense(2)])
    model.compile("adam", "mse", metrics=["mae"])
    rows = (Column(dtype="<f8", row_shape=(3,)), Column(dtype="<f8", row_shape=(2,)))
    build(model, Columns.of_batch(2, rows))
    assert [tuple(weight.shape) for weight in model.weights] == [(3, 4), (4,), (4, 2), (2,)]
    assert model._compile_metrics.built
    assert model.optimizer.built


class Losing(keras.Sequential):
    """Has a loss of its own beside one that it is compiled with, which nothing builds then."""

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        return keras.ops.mean(keras.ops.abs(y_pred - y))


def test_a_loss_beside_one_s_own_is_not_built_of_rows_that_there_are_not():
    def fitted(fit, **settings):
        keras.utils.set_random_seed(3)
        model = Losing([layers.Input((3,)), layers.Dense(2)])
        model.compile("sgd", "mse")
        rows = np.random.default_rng(0).normal(size=(2, 20, 3)).astype("float32")
        fit(model, rows[0], rows[1][:, :2], batch_size=8, shuffle=False, verbose=0, **settings)
        return [value.numpy() for value in model.weights]

    for one, other in zip(fitted(dt.fit, workers=0), fitted(Losing.fit), strict=True):
        np.testing.assert_array_equal(one, other)


def test_buffers_of_modules_are_as_variables():
    model = keras.Sequential([layers.Input((3,)), keras.layers.TorchModuleWrapper(torch.nn.BatchNorm1d(3))])
    mean, spread, count = torch_buffers(model)
    assert [one.name for one in (mean, spread, count)] == ["running_mean", "running_var", "num_batches_tracked"]
    assert ((mean.shape, mean.dtype), count.dtype) == (((3,), "float32"), "int64")
    mean.assign(np.array([1.0, 2.0, 3.0]))
    assert model.layers[0].module.running_mean.tolist() == np.array(mean).tolist() == [1.0, 2.0, 3.0]
    assert [id(one) for one in torch_buffers(model)] == [id(one) for one in (mean, spread, count)]


@pytest.fixture
def summed(on_each_rank):
    """What optimizers see on each of two workers, by the gradients of each; dense, or an error."""

    def called(gradients, weights=(0.75, 0.25)):
        def function(rank, replicas):
            share, seen = RowFraction(), []
            share.weight = weights[rank]
            variables = [keras.Variable(np.zeros((3, 2), "float32")) for _ in gradients[rank]]
            try:
                _Summing(replicas, TorchBackend(), share)(gradients[rank], variables, seen.extend)
            except ValueError as error:
                return str(error)
            return [None if one is None else (one.is_sparse, one.to_dense().tolist()) for one in seen]

        return on_each_rank(function, 2)

    return called


def sparse(row, value):
    return torch.sparse_coo_tensor([[row]], [[value, value]], (3, 2), check_invariants=True)


def test_a_gradient_that_only_some_workers_have_is_none_where_nobody_has_it(summed):
    ones = torch.ones(3, 2)
    looked_up = [[0.0, 0.0], [0.0, 0.0], [2.0, 2.0]]
    lacking = [[ones, None, None, None, None], [ones, 4 * ones, 4 * ones.double(), sparse(2, 8.0), None]]
    dense = (False, ones.tolist())
    assert summed(lacking) == [[dense, dense, dense, (True, looked_up), None]] * 2
    assert summed([[ones, None], [ones, ones]], weights=(1.0, 0.0)) == [[dense, None]] * 2  # of rows that weigh nothing


def test_gradients_of_two_kinds_are_refused(summed):
    for message in summed([[torch.ones(3, 2)], [sparse(1, 1.0)]]):
        assert "is sparse in float32 on one worker and dense in float32 on another one" in message


def test_a_checkpoint_of_another_backend_has_no_random_numbers_of_torch(on_each_rank):
    model = keras.Sequential([layers.Input((2,)), layers.BatchNormalization(), layers.Dropout(0.5, seed=4)])

    def own(_, replicas):
        weights = Weights(model, replicas)
        *kept, random = weights.own()
        kept = [(one + 1).astype("i8" if one.dtype.kind == "i" else one.dtype) for one in kept]
        weights.set_own(kept)
        again = torch.get_rng_state().numpy().tolist() == random.tolist()
        return again, value_of(model.layers[1].seed_generator.state).tolist(), value_of(model.layers[0].moving_mean)[0]

    assert on_each_rank(own, 1) == [(True, [5, 1], 1.0)]
