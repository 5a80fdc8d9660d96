"""Modules of torch as values that travel."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn.utils import parametrizations, parametrize

from dask_train.frameworks.torch.modules import cast_to_weights, pickle_parts, taken_dtype, unpickle_parts


class Symmetric(torch.nn.Module):
    """A parametrization of a user's own."""

    def forward(self, weight):
        return weight.triu() + weight.triu(1).T

    def right_inverse(self, weight):
        return weight.triu()


def symmetric(module):
    parametrize.register_parametrization(module, "weight", Symmetric())
    return parametrizations.spectral_norm(module)


def recurrent():
    module = torch.nn.LSTM(4, 4, batch_first=True)
    return parametrizations.orthogonal(parametrizations.weight_norm(module, "weight_ih_l0"), "weight_hh_l0")


MODULES = {
    "weight_norm": lambda: parametrizations.weight_norm(torch.nn.Linear(4, 4)),
    "spectral_norm": lambda: parametrizations.spectral_norm(torch.nn.Linear(4, 4)),
    "orthogonal": lambda: parametrizations.orthogonal(torch.nn.Linear(4, 4)),
    "householder": lambda: parametrizations.orthogonal(torch.nn.Linear(4, 4), orthogonal_map="householder"),
    "several of the user's own": lambda: symmetric(torch.nn.Linear(4, 4)),
    "recurrent": recurrent,
    "older weight_norm": lambda: torch.nn.utils.weight_norm(torch.nn.Linear(4, 4)),
}


def trained(module, x):
    """The outputs of three steps, and the tensors then."""
    optimizer = torch.optim.Adam(module.parameters(), 0.1)
    found = []
    for _ in range(3):
        outputs = module(x)
        found.append(outputs[0] if isinstance(outputs, tuple) else outputs)
        optimizer.zero_grad()
        (found[-1] ** 2).sum().backward()
        optimizer.step()
    return [*found, *module.state_dict().values()]


@pytest.mark.filterwarnings("ignore:.*weight_norm:FutureWarning")
@pytest.mark.parametrize("make", MODULES.values(), ids=list(MODULES))
def test_a_parametrized_module_trains_on_as_the_one_that_was_sent(make):
    torch.manual_seed(1)
    x = torch.randn(5, 3, 4)
    module = torch.nn.Sequential(make()).double()
    first = module[0]
    both = torch.nn.ModuleDict({"one": first, "again": first, "whole": module})
    arrived = unpickle_parts(*pickle_parts(both))
    assert arrived["one"] is arrived["again"] is arrived["whole"][0]
    assert type(arrived["one"]).__name__ == type(first).__name__
    assert parametrize.is_parametrized(arrived["one"]) == parametrize.is_parametrized(first)
    assert list(arrived.state_dict()) == list(both.state_dict())
    again = unpickle_parts(*pickle_parts(arrived))["one"]  # from a worker to another one
    wanted = trained(first, x.double())
    for found in (arrived["one"], again):
        assert all(map(torch.equal, trained(found, x.double()), wanted))


def test_tensors_lie_in_memory_as_those_that_were_sent():
    module = torch.nn.Conv2d(3, 4, 2).to(memory_format=torch.channels_last)
    module.register_buffer("cut", torch.arange(12.0).reshape(3, 4)[:, ::2].T)
    module.register_buffer("number", torch.tensor(2.0))
    module.register_buffer("lazy", torch.tensor([1 + 2j]).conj())
    module.register_buffer("negative", module.lazy.imag)
    arrived = unpickle_parts(*pickle_parts(module))
    assert arrived.weight.is_contiguous(memory_format=torch.channels_last)
    for name, tensor in module.state_dict().items():
        assert torch.equal(arrived.state_dict()[name], tensor)
    assert arrived.cut.stride() == (1, 2)


def test_tensors_keep_the_attributes_that_they_were_given():
    """By which a function may make an optimizer: which weights decay, say."""
    module = torch.nn.Linear(2, 2)
    module.bias.decays = False
    module.weight.whose = module  # which is pickled around it
    module.register_buffer("count", torch.zeros(1))
    module.count.unit = "rows"
    arrived = unpickle_parts(*pickle_parts(module))
    assert vars(arrived.bias) == {"decays": False}
    assert arrived.weight.whose is arrived
    assert vars(arrived.count) == {"unit": "rows"}


@pytest.mark.parametrize(
    ("module", "dtype", "numpy"),
    [
        (torch.nn.Linear(2, 1).half(), torch.float16, "float16"),
        (torch.nn.Linear(2, 1).double(), torch.float64, "float64"),
        (torch.nn.Linear(2, 1).bfloat16(), torch.bfloat16, "float32"),  # NumPy has not that
        (torch.nn.Sequential(torch.nn.Linear(2, 1).half(), torch.nn.Linear(1, 1)), torch.float32, "float32"),
        (torch.nn.ReLU(), torch.float32, "float32"),
    ],
    ids=["float16", "float64", "bfloat16", "several", "none"],
)
def test_floats_are_given_in_the_one_dtype_of_the_weights(module, dtype, numpy):
    assert cast_to_weights(module, torch.zeros(2)).dtype == dtype
    assert taken_dtype(module, np.dtype("float32")) == numpy
    for other in (torch.int64, torch.bool):
        assert cast_to_weights(module, torch.zeros(2, dtype=other)).dtype == other
    assert taken_dtype(module, np.dtype("int8")) == "int8"
