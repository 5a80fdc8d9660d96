"""Tensors of a module in the same memory: which ones a worker can't have as they are."""

from __future__ import annotations

import pytest
import torch

import dask_train as dt
from dask_train.fitting.torch_module.storage_checks import check_apart


def pair(*, tied=False, frozen=False):
    both = torch.nn.ModuleDict({"encoder": torch.nn.Linear(3, 3), "decoder": torch.nn.Linear(3, 3)})
    if tied:
        both["decoder"].weight = both["encoder"].weight
    return both.requires_grad_(not frozen)


def data_tied(**how):
    both = pair(**how)
    both["decoder"].weight.data = both["encoder"].weight.data
    return both


def columns(*starts, frozen=()):
    """Matrices of two columns each of one memory."""
    memory, several = torch.zeros(2, 3, 9)[1], torch.nn.Module()
    for number, start in enumerate(starts):
        one = torch.nn.Parameter(memory[:, start : start + 2], requires_grad=number not in frozen)
        several.register_parameter(f"column{number}", one)
    return several


class Wrapper(torch.Tensor):
    """A tensor that computes by another one, and has no memory of its own."""

    @staticmethod
    def __new__(cls, within):
        return torch.Tensor._make_wrapper_subclass(cls, within.shape, dtype=within.dtype)

    def __init__(self, within):
        self.within = within

    @classmethod
    def __torch_dispatch__(cls, function, _types, tensors=(), _more=None):
        return cls(function(*(one.within for one in tensors)))


def of_wrappers():
    both = pair()
    for each in both.values():
        each.weight = torch.nn.Parameter(Wrapper(each.weight.detach()))
    return both


def with_view(make):
    one = torch.nn.Linear(3, 4)
    one.register_buffer("view", make(one.weight.detach()))
    return one


def of_one_memory():
    """Columns of one matrix, as a module may lay out what it multiplies at once."""
    both, memory = pair(), torch.zeros(3, 6)
    for place, name in enumerate(both):
        both[name].weight.data = memory[:, place * 3 : place * 3 + 3]
    return both


@pytest.mark.parametrize(
    ("module", "names"),
    [
        (data_tied(), "'encoder.weight' and 'decoder.weight'"),
        (columns(0, 3, 6, 4), "'column1' and 'column3'"),
        (columns(0, 3, 5, 4, frozen=[1]), "'column2' and 'column3'"),
        (columns(4, 0, 3, 6, frozen=[0, 1, 3]), "'column0' and 'column2'"),
        (with_view(lambda weight: weight.T), "'weight' and 'view'"),
        (with_view(lambda weight: weight[2:, 1]), "'weight' and 'view'"),
        (with_view(lambda weight: weight[:1, :1].expand(2, 2)), "'weight' and 'view'"),
        (with_view(lambda weight: weight.view(torch.uint8)), "'weight' and 'view'"),
    ],
    ids=["tied by data", "columns", "some columns", "one trained column", "transposed", "a part", "expanded", "bytes"],
)
def test_different_tensors_in_the_same_memory_are_refused(module, names):
    with pytest.raises(ValueError, match=f"{names} of the module are different tensors in the same memory"):
        check_apart(module)


@pytest.mark.parametrize(
    "module",
    [
        pair(tied=True),
        data_tied(frozen=True),
        of_one_memory(),
        of_wrappers(),
        pair().to("meta"),
        columns(0, 2, 4, 7),
        columns(0, 1, 5, frozen=[0, 1]),
        with_view(lambda weight: weight[:0]),
        with_view(torch.clone),
    ],
    ids=[
        "tied",
        "not trained",
        "parts of one memory",
        "wrappers",
        "meta",
        "columns",
        "frozen columns",
        "empty",
        "a copy",
    ],
)
def test_tensors_that_may_come_apart_are_not(module):
    check_apart(module)


def test_it_is_checked_before_anything_starts(monkeypatch):
    monkeypatch.setattr("dask_train.fitting.start.client_or_local", lambda *_: None)
    module = with_view(lambda weight: weight)
    with pytest.raises(ValueError, match="different tensors in the same memory"):
        dt.fit(module, torch.ones(8, 3).numpy(), loss=torch.sum, optimizer=torch.optim.SGD, workers=2)
    dt.fit(module, torch.ones(8, 3).numpy(), loss=torch.sum, optimizer=torch.optim.SGD, workers=0, verbose=0)
