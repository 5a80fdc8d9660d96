"""Modules of torch that predict: what travels of them, what they say of rows, and what is refused."""

from __future__ import annotations

import threading
import warnings
from typing import Any

import numpy as np
import pytest
import torch

import dask_train as dt
from dask_train.data.columns import Column, Columns
from dask_train.predicting.server.torch_model import (
    EXPORTED,
    MODULE,
    SCRIPT,
    TorchRunner,
    described,
    kind_of,
    open_parts,
    take_apart,
)
from dask_train.predicting.server.values import Call

RNG = np.random.default_rng(0)
X = RNG.normal(size=(11, 3)).astype("f4")
THREE = Column(dtype="<f4", row_shape=(3,))


class Net(torch.nn.Module):
    """With what behaves otherwise while it trains, and a layer under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(3, 3)
        self.again = self.first
        self.norm = torch.nn.BatchNorm1d(3)
        self.drop = torch.nn.Dropout(0.5)

    def forward(self, x):
        return self.drop(self.norm(self.again(self.first(x))))


class Making(torch.nn.Module):
    """What a function makes of its inputs."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, *x: Any, **named: Any) -> Any:
        return self.function(*x, **named)


def asked(module, places=None, rows=(THREE,), batch_size=4, **more):
    """A call as it is asked of a module."""
    columns = (places or Columns.of_batch(1)).with_rows(rows)
    places, outputs = described(module, columns)
    known = {"columns": columns, "outputs": outputs, "places": places, "batch_size": batch_size}
    return Call(verb="predict", **known | more)


def predicted(module, arrays, call=None, num_threads=None):
    """What a module says of arrays, and how often it told that a batch is done."""
    call = call or asked(module, rows=tuple(Column(dtype=a.dtype.str, row_shape=a.shape[1:]) for a in arrays))
    out, beats = [column.empty(len(arrays[0])) for column in call.outputs], []
    TorchRunner(module, num_threads).predict(call, arrays, out, lambda: beats.append(1))
    return out, len(beats)


def by_itself(module, x):
    with torch.inference_mode():
        return module.eval()(torch.from_numpy(x)).numpy()


def exported(module, *, any_rows=True):
    shapes = ({0: torch.export.Dim("rows")},) if any_rows else None
    return torch.export.export(module, (torch.zeros(4, 3),), dynamic_shapes=shapes)


@pytest.mark.parametrize("batch_size", [1, 4, 11, 100])
def test_rows_in_batches_of_any_size(batch_size):
    net = Net()
    (found,), beats = predicted(net, [X], asked(net, batch_size=batch_size))
    np.testing.assert_allclose(found, by_itself(net, X), rtol=1e-5, atol=1e-6)
    assert beats == -(-11 // batch_size)


def test_the_users_module_is_as_it_was():
    net = Net()
    net.norm.eval()
    before = {name: part.training for name, part in net.named_modules()}
    threads, averages = torch.get_num_threads(), net.norm.running_mean.clone()
    predicted(net, [X])
    assert {name: part.training for name, part in net.named_modules()} == before
    assert torch.equal(net.norm.running_mean, averages)
    assert torch.get_num_threads() == threads


def test_it_is_as_it_was_also_where_it_fails():
    net = Net()
    call = asked(net)
    net.norm = Making(lambda x: x / "no number")
    with pytest.raises(TypeError):
        predicted(net, [X], call)
    assert all(part.training for part in net.modules())


def test_a_process_of_its_own_has_its_threads():
    before = torch.get_num_threads()
    try:
        TorchRunner(Net(), before + 1)
        assert torch.get_num_threads() == before + 1
    finally:
        torch.set_num_threads(before)


def test_gradients_are_not_kept():
    seen = []
    module = Making(lambda x: seen.append((torch.is_grad_enabled(), torch.is_inference_mode_enabled())) or x)
    predicted(module, [X])
    assert set(seen) == {(False, False)}
    seen.clear()
    call, threads = asked(Net()), torch.get_num_threads()
    predicted(module, [X], call, num_threads=threads)
    assert set(seen) == {(False, True)}, "of a process of its own alone, where nobody trains"


@pytest.mark.parametrize(
    ("x", "function"),
    [
        ((0, 1), lambda a, b: a + b),
        ([0, 1], lambda a, b: a + b),
        ({"b": 0, "a": 1}, lambda *, a, b: a + b),
    ],
    ids=["tuple", "list", "dict"],
)
def test_several_inputs_are_arguments_or_named(x, function):
    module = Making(function)
    call = asked(module, Columns(features=x), (THREE, THREE))
    (found,), _ = predicted(module, [X, 10 * X], call)
    np.testing.assert_allclose(found, 11 * X, rtol=1e-6)


def test_several_outputs_keep_their_structure():
    module = Making(lambda x: {"double": 2 * x, "rest": [x[:, 0], (x > 0,)]})
    call = asked(module)
    assert call.places == {"double": 0, "rest": [1, (2,)]}
    assert [(each.dtype, each.row_shape) for each in call.outputs] == [("<f4", (3,)), ("<f4", ()), ("|b1", (3,))]
    (double, first, signs), _ = predicted(module, [X], call)
    np.testing.assert_array_equal(double, 2 * X)
    np.testing.assert_array_equal(first, X[:, 0])
    np.testing.assert_array_equal(signs, X > 0)


@pytest.mark.parametrize("dtype", ["float64", "float16", "int64", "uint8", "bool"])
def test_dtypes_that_numpy_has_stay(dtype):
    module = Making(lambda x: x)
    rows = (X > 0).astype(dtype)
    (found,), _ = predicted(module, [rows])
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, rows)


def test_bfloat16_which_numpy_has_not_comes_as_float32():
    (found,), _ = predicted(Making(lambda x: x.to(torch.bfloat16)), [X])
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, X, rtol=1e-2)


def test_a_module_in_bfloat16_gets_its_rows_so():
    module = torch.nn.Linear(3, 2).bfloat16()
    (found,), _ = predicted(module, [X])
    with torch.no_grad():
        np.testing.assert_array_equal(found, module(torch.from_numpy(X).bfloat16()).float().numpy())


def test_random_numbers_follow_from_the_block():
    module = Making(lambda x: x + torch.rand(x.shape))
    state = torch.get_rng_state()
    try:
        first, again, other = (
            predicted(module, [X], asked(module, block_seed=seed))[0][0].tolist() for seed in (1, 1, 2)
        )
    finally:
        torch.set_rng_state(state)
    assert first == again
    assert first != other


def test_the_users_random_numbers_are_not_seeded():
    module = Making(lambda x: x)
    state = torch.get_rng_state()
    predicted(module, [X], asked(module))
    assert torch.equal(torch.get_rng_state(), state)


def test_a_block_without_rows():
    (found,), beats = predicted(Net(), [X[:0]])
    assert (found.shape, beats) == ((0, 3), 0)


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (lambda x: x[:1], r"module made an array of shape \(1, 3\) of 4 rows, and \(4, 3\) was expected"),
        (lambda x: (x, x), "made a tuple of 2 of 4 rows, and one array of sample rows"),
        (lambda x: x.double(), "made float64, and float32 was told before"),
    ],
)
def test_what_is_not_as_planned_is_refused(function, told):
    call = asked(Making(lambda x: x))
    with pytest.raises(ValueError, match=told):
        predicted(Making(function), [X], call)


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (lambda x: x.sum(), r"Module 'Making': it made a Tensor of 2 rows"),
        (lambda x: x[:1], r"Module 'Making': it made \(1, 3\) of 2 rows; it has to make a tensor with one row of each"),
        (lambda x: "text", "Module 'Making': it made a str of 2 rows"),
        (lambda x: x @ torch.ones(4), "does not fit module 'Making': it has rows of float32 .3,.. RuntimeError: "),
    ],
    ids=["a number", "one row", "no tensor", "other features"],
)
def test_modules_that_make_no_row_of_each_are_refused_before_anything_is_computed(function, told):
    with pytest.raises(ValueError, match=told):
        asked(Making(function))


def only_shares(x):
    if not bool((x.sum(1) - 1).abs().max() < 1e-3):
        raise ValueError("no shares")
    return x


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.linalg.inv(torch.diag_embed(x)).diagonal(dim1=1, dim2=2),  # ones have an inverse
        lambda x: torch.linalg.cholesky(x[:, :, None] * x[:, None] - torch.eye(3)).diagonal(dim1=1, dim2=2),
    ],
    ids=["no zeros", "neither zeros nor ones"],
)
def test_a_module_that_made_up_rows_do_not_suit_is_described_by_shapes(function):
    (column,) = asked(Making(function)).outputs
    assert column == THREE


def test_a_module_that_only_real_rows_can_describe_is_refused_with_what_to_do():
    with pytest.raises(ValueError, match=r"no shares It was tried on rows of zeros.* pass a function .* meta="):
        asked(Making(only_shares))


def test_rows_of_a_dtype_that_the_module_does_not_take_are_refused():
    """Also where it takes them without values: integers, which are not cast, for weights that are floats."""
    columns = Columns(features=0).with_rows([Column(dtype="<i8", row_shape=(3,))])
    with pytest.raises(ValueError, match=r"rows of int64 \(3,\)\. .*same dtype.* Cast the rows .*astype\('float32'\)"):
        described(torch.nn.Linear(3, 1), columns)


def test_numbers_a_row_are_called_that():
    with pytest.raises(ValueError, match="it has rows of int64 numbers and rows of float32"):
        asked(torch.nn.Linear(3, 1), Columns(features=(0, 1)), (Column(dtype="<i8", row_shape=()), THREE))


# Taken apart


def arrived(model):
    kind, module = kind_of(model)
    header, arrays = take_apart(kind, model, module)
    return kind, open_parts(kind, header, [array.copy() for array in arrays])


def test_a_module_travels_by_value_and_what_is_one_stays_one():
    net = Net()
    header, arrays = take_apart(MODULE, net, net)
    assert sum(array.nbytes for array in arrays) == sum(each.nbytes for each in (*net.parameters(), *net.buffers()))
    memory = net.first.weight.detach().numpy()
    assert any(np.shares_memory(array, memory) for array in arrays), "no copy here"
    other = open_parts(MODULE, header, arrays)
    assert other.again is other.first
    (found,), _ = predicted(other, [X])
    np.testing.assert_allclose(found, by_itself(net, X), rtol=1e-5, atol=1e-6)
    assert not np.shares_memory(other.first.weight.detach().numpy(), memory)


def test_what_torch_has_compiled_for_this_process_travels_as_its_module():
    compiled, net = torch.nn.Module(), Net()
    compiled._orig_mod = net  # where torch.compile keeps it
    assert kind_of(compiled) == (MODULE, net)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_scripted_modules():
    net = Net().eval()
    kind, other = arrived(torch.jit.script(net))
    assert kind == SCRIPT
    (found,), _ = predicted(other, [X])
    np.testing.assert_allclose(found, by_itself(net, X), rtol=1e-5, atol=1e-6)


def test_exported_programs_also_of_a_batch_of_one_row():
    net = Net().eval()
    kind, other = arrived(exported(net))
    assert kind == EXPORTED
    for batch_size in (1, 4, 10):
        (found,), _ = predicted(other, [X], asked(other, batch_size=batch_size))
        np.testing.assert_allclose(found, by_itself(net, X), rtol=1e-5, atol=1e-6)


def test_a_program_that_was_exported_for_one_size_is_refused_with_the_way_out():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _, other = arrived(exported(Net().eval(), any_rows=False))
    with pytest.raises(ValueError, match=r"takes any number of rows if it was exported with dynamic_shapes="):
        asked(other)


@pytest.mark.parametrize("model", [len, "a file", np.ones(3)])
def test_what_is_no_model_of_torch_is_refused(model):
    with pytest.raises(TypeError, match=rf"model is a {type(model).__name__}; pass a torch.nn.Module"):
        kind_of(model)


def test_it_says_neither_loss_nor_metrics():
    runner = TorchRunner(Net(), None)
    for verb in (runner.evaluate, runner.logs):
        with pytest.raises(NotImplementedError):
            verb(None, [X], lambda: None)


def test_numbers_of_another_byte_order_are_taken_as_they_are():
    module = Making(lambda x: x * 2)
    for dtype in (">i4", ">u2", ">f8"):
        x = np.arange(6).reshape(3, 2).astype(dtype)
        found = dt.predict(module, x).compute(scheduler="sync")
        np.testing.assert_array_equal(found, x * 2)
        assert found.dtype == np.dtype(dtype).newbyteorder("=")


def test_an_attribute_of_a_tensor_that_can_not_be_sent_is_named():
    net = torch.nn.Sequential(torch.nn.Linear(3, 2))
    net[0].bias.lock = threading.Lock()
    with pytest.raises(TypeError, match=r"because of attribute 'lock' of its '0.bias': TypeError: cannot pickle"):
        take_apart(MODULE, net, net)
