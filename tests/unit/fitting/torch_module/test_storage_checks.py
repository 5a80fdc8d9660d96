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
        (with_view(lambda weight: weight.T), "'weight' and 'view'"),
        (with_view(lambda weight: weight[2:, 1]), "'weight' and 'view'"),
        (with_view(lambda weight: weight[:1, :1].expand(2, 2)), "'weight' and 'view'"),
        (with_view(lambda weight: weight.view(torch.uint8)), "'weight' and 'view'"),
    ],
    ids=["tied by data", "transposed", "a part", "expanded", "bytes"],
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
        with_view(lambda weight: weight[:0]),
        with_view(torch.clone),
    ],
    ids=["tied", "not trained", "parts of one memory", "empty", "a copy"],
)
def test_tensors_that_may_come_apart_are_not(module):
    check_apart(module)


def test_it_is_checked_before_anything_starts(monkeypatch):
    monkeypatch.setattr("dask_train.fitting.start.client_or_local", lambda *_: None)
    module = with_view(lambda weight: weight)
    with pytest.raises(ValueError, match="different tensors in the same memory"):
        dt.fit(module, torch.ones(8, 3).numpy(), loss=torch.sum, optimizer=torch.optim.SGD, workers=2)
    dt.fit(module, torch.ones(8, 3).numpy(), loss=torch.sum, optimizer=torch.optim.SGD, workers=0, verbose=0)
