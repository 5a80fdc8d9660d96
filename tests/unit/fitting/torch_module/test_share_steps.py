"""Steps over a fixed number of shares: the gradients of one process, to the same bits on any number of workers."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch.nn import functional

from dask_train.data.columns import Columns
from dask_train.data.order import block_of
from dask_train.fitting.torch_module.share_steps import ShareSteps
from dask_train.fitting.torch_module.shares import ModuleShares
from dask_train.fitting.torch_module.steps import ModuleSteps

SHARES = 5
_random = np.random.default_rng(0)
X = _random.normal(size=(23, 4)).astype(np.float32)
VALUES = _random.normal(size=(23, 3)).astype(np.float32)
WEIGHTS = _random.random(23).astype(np.float32)


class Net(torch.nn.Module):
    """Has a part that some shares do not use, and one that none does; in 16 bits as well."""

    def __init__(self):
        super().__init__()
        self.first, self.last = torch.nn.Linear(4, 5), torch.nn.Linear(5, 3)
        self.sometimes, self.never = torch.nn.Linear(4, 3), torch.nn.Linear(4, 3)

    def forward(self, x):
        found, some = self.last(torch.tanh(self.first(x))), x[:, 0] > 1
        return found.masked_scatter(some[:, None], self.sometimes(x[some])) if some.any() else found


torch.manual_seed(2)
NET = Net()  # ranks are threads, which would draw numbers in any order


def compares_rows(outputs, y):
    return torch.cdist(outputs, y).logsumexp((0, 1))


class Penalised(torch.nn.Module):
    """A loss with a penalty on weights of the module."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, outputs, y):
        return functional.mse_loss(outputs, y) + 0.1 * (self.net.last.weight**2).sum() + self.net.never.bias.sum()


def stepped(make, loss, *, weights=None, rows=23, tells_outputs=False):
    """Loss, outputs and gradients of a step; ``make`` makes the steps and says which rows of the batch are its own."""
    net = copy.deepcopy(NET)
    loss = loss(net) if loss is Penalised else loss
    steps, mine = make(net, loss, rows, tells_outputs)
    columns = [torch.from_numpy(each[:rows][mine]) for each in (X, VALUES, weights) if each is not None]

    def packed(at):
        return steps.packed(Columns.of_batch(len(columns)), [each[at] for each in columns])

    def some_row():
        return steps.packed(Columns.of_batch(2), [torch.from_numpy(each[:1]) for each in (X, VALUES)])

    found = [steps.evaluate(packed(slice(None)), some_row)]
    steps.train(packed(slice(None)), some_row, lambda: None, found.append)
    gradients = [None if one.grad is None else one.grad for one in net.parameters()]
    return [(each.loss, each.outputs, each.rows) for each in found], gradients


def alone(net, loss, rows, tells_outputs):
    return ModuleSteps(net, loss, None, tells_outputs=tells_outputs), slice(None)


def shared(rank, replicas):
    def make(net, loss, rows, tells_outputs):
        shares = ModuleShares(net, replicas, SHARES, torch.get_rng_state().numpy())
        steps = ShareSteps(net, loss, replicas, tells_outputs=tells_outputs, shares=shares, global_rows=lambda: rows)
        block = block_of(rank, replicas.size, SHARES)
        return steps, slice(block.start * rows // SHARES, block.stop * rows // SHARES)

    return make


CASES = {
    "a mean": {"loss": torch.nn.MSELoss()},
    "a sum": {"loss": torch.nn.MSELoss(reduction="sum")},
    "weights": {"loss": torch.nn.MSELoss(), "weights": WEIGHTS},
    "metrics": {"loss": torch.nn.MSELoss(), "tells_outputs": True},
    "all rows": {"loss": compares_rows},
    "a penalty": {"loss": Penalised},
    "fewer rows than shares": {"loss": torch.nn.MSELoss(), "rows": 3},
    "fewer rows, gathered": {"loss": compares_rows, "rows": 3},
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_step_is_that_of_one_process_and_has_the_same_bits_on_any_number_of_workers(on_each_rank, case):
    wanted, gradients = stepped(alone, **case)
    outcomes = [
        found for size in (1, 2, 3, 5) for found in on_each_rank(lambda *its: stepped(shared(*its), **case), size)
    ]
    for done, found in outcomes:
        for (loss, outputs, rows), (wanted_loss, wanted_outputs, wanted_rows) in zip(done, wanted, strict=True):
            assert (loss, rows) == (pytest.approx(wanted_loss, rel=1e-5), wanted_rows)
            if outputs is not None:
                torch.testing.assert_close(outputs, wanted_outputs)
        for one, other in zip(found, gradients, strict=True):
            assert (one is None) == (other is None)
            if one is not None:
                torch.testing.assert_close(one, other)
        assert repr(done) == repr(outcomes[0][0])
        bits = [[None if one is None else one.numpy().tobytes() for one in each] for each in (found, outcomes[0][1])]
        assert bits[0] == bits[1]


def test_gradients_of_16_bits_are_added_up_in_32(on_each_rank):
    def total(rank, replicas):
        net = copy.deepcopy(NET).to(torch.bfloat16)
        steps, mine = shared(rank, replicas)(net, torch.nn.MSELoss(), 23, False)
        columns = [torch.from_numpy(each[mine]) for each in (X, VALUES)]
        steps.train(steps.packed(Columns.of_batch(2), columns), lambda: None, lambda: None)
        return [one.grad.float().numpy().tobytes() for one in net.parameters() if one.grad is not None]

    found = [each for size in (1, 2, 3) for each in on_each_rank(total, size)]
    assert all(each == found[0] for each in found)


class Counts(torch.nn.Module):
    calls = 0

    def __init__(self, where):
        super().__init__()
        self.where, self.seen, self.last = where, [], None
        self.register_buffer("count", torch.zeros(()))
        self.weight = torch.nn.Parameter(torch.ones(()))
        self.teacher = torch.nn.Parameter(self.weight.detach().clone(), requires_grad=False)

    def forward(self, x):
        if self.where == "a number":
            self.calls += 1
        elif self.where == "a list":
            self.seen.append(len(x))
        elif self.where == "a tensor":
            self.last = x if self.last is None else self.last[: len(x)] + x
        elif self.where == "buffer":
            self.count += 1
        elif self.where == "a parameter":
            self.teacher.data.lerp_(self.weight.data, 0.1)
        elif self.where == "the same parameter":
            self.weight.data.clamp_(max=0.9)
        else:  # what a module makes once, or anew each time, is no memory
            self.last, self.calls = x, len(x)
        return x * self.weight


@pytest.mark.parametrize(
    "where", ["a number", "a list", "a tensor", "a parameter", "the same parameter", "buffer", "nowhere"]
)
def test_what_a_module_keeps_of_its_calls_has_to_be_in_buffers(on_each_rank, where):
    def take_step(rank, replicas):
        net = torch.nn.Sequential(torch.nn.Linear(4, 3), Counts(where))
        steps, _ = shared(rank, replicas)(net, torch.nn.MSELoss(), 23, False)
        columns = [torch.from_numpy(each) for each in (X, VALUES)]
        steps.train(steps.packed(Columns.of_batch(2), columns), lambda: None, lambda: None)
        return net[1]

    if where in ("the same parameter", "buffer", "nowhere"):
        (found,) = on_each_rank(take_step, 1)
        assert float(found.count) == (where == "buffer"), "each share has a count of its own"
        return
    with pytest.raises(
        ValueError, match=r"of each call in its (attribute '1\.(calls|seen|last)'|parameter '1\.teacher')"
    ):
        on_each_rank(take_step, 1)
