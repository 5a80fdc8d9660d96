"""What the user's module and optimizer hold after a fit, and what a fit tells that was ended before it could."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch

from dask_train.data.ledger import Ledger
from dask_train.driver.result import Result
from dask_train.fitting.torch_module.api import evaluated, module_trained
from dask_train.fitting.torch_module.values import plain, state_of
from dask_train.trainers.common.outcome import Outcome

NONE = Outcome(
    header={},
    arrays=[],
    history={"loss": [0.5]},
    epoch=[0],
    callbacks=[],
    steps=1,
    read=[],
    num_rows=8,
    warnings=[],
    num_steps=1,
    all_reduce_s=0.2,
    waiting_s=0.1,
    applied={},
    best_epoch=0,
)


def result_of(came):
    return Result(
        results={"worker": [came, None]},
        scores=[],
        ledger=Ledger.of_lines([], lambda _: 0),
        attempts=[],
        stop_reason="by hand",
        run_id="fit-1",
        notices=["odd"],
    )


def network():
    return torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 1))


def trained(module, optimizer):
    for _ in range(2):
        optimizer.zero_grad()
        module(torch.randn(5, 2)).sum().backward()
        optimizer.step()
    state = {"module": state_of(module), "optimizer": optimizer.state_dict()}
    return replace(NONE, header={"training": plain(state)}, warnings=["of a kind"])


def same(one, other):
    return all(torch.equal(tensor, other.state_dict()[name]) for name, tensor in one.state_dict().items())


def test_the_user_s_tensors_and_optimizer_hold_what_was_trained_and_go_on_like_it():
    mine = network()
    theirs = copy.deepcopy(mine)
    tensors = list(mine.parameters())
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.1, momentum=0.9) for each in (mine, theirs)]
    with pytest.warns(UserWarning, match="of a kind"):
        found = module_trained(result_of(trained(theirs, optimizers[1])), mine, mine, optimizers[0], None)
    assert same(mine, theirs)
    assert all(one is other for one, other in zip(mine.parameters(), tensors, strict=True)), "the very tensors"
    assert (found.model, found.history, found.best_epoch, found.notices) == (mine, {"loss": [0.5]}, 0, ["odd"])
    for each, optimizer in zip((mine, theirs), optimizers, strict=True):
        optimizer.zero_grad()
        each(torch.ones(5, 2)).sum().backward()
        optimizer.step()
    assert same(mine, theirs), "the momentum, too"


def test_the_result_has_the_module_that_was_passed_and_the_one_within_is_trained():
    within = network()
    theirs = copy.deepcopy(within)
    outcome = replace(trained(theirs, torch.optim.SGD(theirs.parameters(), lr=0.1)), warnings=[])
    compiled = object()
    assert module_trained(result_of(outcome), compiled, within, torch.optim.SGD, None).model is compiled
    assert same(within, theirs)


@pytest.mark.parametrize("came", [None, NONE], ids=["ended before", "trained in place"])
def test_where_nothing_was_sent_the_module_stays_as_it_is(came):
    module = network()
    before = copy.deepcopy(module)
    found = module_trained(result_of(came), module, module, None, None)
    assert same(module, before)
    assert (found.stop_reason, found.epoch) == ("by hand", [] if came is None else [0])


def test_an_evaluation_that_was_ended_has_no_scores():
    assert evaluated(result_of({"loss": 0.5})) == {"loss": 0.5}
    with pytest.raises(ValueError, match=r"ended before it was through: by hand\."):
        evaluated(result_of(None))
