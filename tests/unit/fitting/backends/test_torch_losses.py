"""Which parts of a loss are found to be sums over the rows of a batch."""

from __future__ import annotations

import os

import pytest

if os.environ.get("KERAS_BACKEND") != "torch":
    pytest.skip("in a process of its own: KERAS_BACKEND=torch", allow_module_level=True)

import torch
from torch.nn import functional

from dask_train.fitting.backends.torch import _Through
from dask_train.fitting.backends.torch_losses import Sums, mark_multiplied
from dask_train.fitting.backends.tried_gathers import TriedGather, TriedGathers

pytestmark = pytest.mark.backends

_random = torch.Generator().manual_seed(0)
ROWS, TARGETS, WEIGHTS = (torch.randn(6, *shape, generator=_random).abs() for shape in ((3,), (2,), ()))
KERNEL = torch.nn.Parameter(torch.randn(3, 2, generator=_random))
SQUARE = torch.nn.Parameter(torch.randn(6, 6, generator=_random))  # as many as there are rows


def by_row(x, y):
    return (x @ KERNEL - y).square().sum(-1)


def _deep(tensor):
    for _ in range(30):
        tensor = tensor.sum(-1, keepdim=True)
    return tensor


LOSSES = {
    "a sum": (lambda x, y, w: by_row(x, y).sum(), [True]),
    "a mean": (lambda x, y, w: by_row(x, y).mean(), [False]),
    "a value a row": (lambda x, y, w: by_row(x, y), [True]),
    "a sum over the number of rows": (lambda x, y, w: by_row(x, y).sum() / len(x), [False]),
    "a sum of parts of a mean": (lambda x, y, w: (by_row(x, y) / len(x)).sum(), [False]),
    "a sum over a number": (lambda x, y, w: by_row(x, y).sum() / 6, [True]),
    "parts": (
        lambda x, y, w: by_row(x, y).mean() + 0.1 * by_row(x, y).sum() - KERNEL.square().sum() + SQUARE.sum(),
        [False, True, False, False],
    ),
    "parts in a list": (lambda x, y, w: torch.stack([by_row(x, y).sum(), KERNEL.sum()]).sum(), [True, False]),
    "torch's own, summed": (lambda x, y, w: functional.mse_loss(x @ KERNEL, y, reduction="sum"), [True]),
    "torch's own": (lambda x, y, w: functional.mse_loss(x @ KERNEL, y), [False]),
    "classes, summed": (lambda x, y, w: functional.cross_entropy(x @ KERNEL, y.argmax(1), reduction="sum"), [True]),
    "classes": (lambda x, y, w: functional.cross_entropy(x @ KERNEL, y.argmax(1)), [False]),
    "a weighted mean": (lambda x, y, w: (by_row(x, y) * (w / w.sum())).sum(), [False]),
    "a weighted sum": (lambda x, y, w: (by_row(x, y) * w).sum(), [True]),
    "a root": (lambda x, y, w: by_row(x, y).sum().sqrt(), [False]),
    "a norm": (lambda x, y, w: (x @ KERNEL - y).norm(), [False]),
    "a mean by column, summed": (lambda x, y, w: (x @ KERNEL - y).square().mean(0).sum(), [False]),
    "rows and columns in one": (lambda x, y, w: (x @ KERNEL - y).square().reshape(-1).sum(), [True]),
    "a quotient of sums": (lambda x, y, w: by_row(x, y).sum() / (x @ KERNEL).square().sum(), [False]),
    "a sum times a mean": (lambda x, y, w: by_row(x, y).sum() * KERNEL.square().mean(), [True]),
    "made of more than is looked at": (
        lambda x, y, w: torch.stack([_deep(x @ KERNEL).mean(), _deep(by_row(x, y).sum().reshape(1)).sum()]).sum(),
        [False, False],
    ),
    "mark_multiplied": (lambda x, y, w: 2 * mark_multiplied(by_row(x, y).sum()), [False]),
}


def derived(loss, times=1):
    """The gradient of a loss by the kernel."""
    KERNEL.grad = None
    value = loss(*(torch.cat([one] * times) for one in (ROWS, TARGETS, WEIGHTS)))
    value.backward(torch.ones_like(value))
    return KERNEL.grad


@pytest.mark.parametrize("name", LOSSES)
def test_sums_over_rows_are_multiplied_and_nothing_else_is(name):
    loss, kinds = LOSSES[name]
    alone, sums = derived(loss), Sums()
    with sums.multiplied(lambda dtype: torch.tensor(10.0, dtype=dtype)):
        sums.learn(lambda times: derived(loss, times))
        sums.begin_step()
        found = derived(loss)
    assert sums._kinds == {0: kinds}
    if len(kinds) == 1:
        torch.testing.assert_close(found, alone * (10 if kinds == [True] else 1))
    torch.testing.assert_close(derived(loss), alone)  # it is over


@pytest.mark.parametrize(
    ("loss", "kind"),
    [
        (lambda own, all_rows: all_rows.square().sum(), False),
        (lambda own, all_rows: all_rows.square().mean(), False),
        (lambda own, all_rows: (own @ all_rows.T).logsumexp(1).sum(), True),
        (lambda own, all_rows: (own @ all_rows.T).logsumexp(1).sum() / len(all_rows), True),
        (lambda own, all_rows: (own @ all_rows.T).logsumexp(1).mean(), False),
    ],
    ids=["sum of all", "mean of all", "sum beside all", "sum by the number of all", "mean beside all"],
)
def test_sums_over_rows_of_all_workers_are_none_of_a_worker(loss, kind):
    sums, gathers = Sums(), TriedGathers()

    def step(times=1):
        gathers.begin()
        own, place = torch.cat([ROWS] * times) @ KERNEL, TriedGather()
        everyones = torch.from_numpy(gathers.gather(place, own.detach().numpy()))
        through = _Through.apply(own, everyones, lambda arrays: [gathers.spread(place, arrays[0])])
        loss(own, through).backward()

    with sums.multiplied(lambda dtype: torch.tensor(10.0, dtype=dtype)):
        sums.learn(step)
    assert sums._kinds == {0: [kind]}


def test_derivations_of_a_step_are_told_apart():
    sums = Sums()

    def step(times=1):
        sums.begin_step()
        x, y = torch.cat([ROWS] * times), torch.cat([TARGETS] * times)
        return [torch.autograd.grad(loss, [KERNEL])[0] for loss in (by_row(x, y).mean(), by_row(x, y).sum())]

    mean, total = step()
    with sums.multiplied(lambda dtype: torch.tensor(10.0, dtype=dtype)):
        sums.learn(step)
        found = step()
    torch.testing.assert_close(found, [mean, 10 * total])


def test_gradients_by_inputs_are_left_alone():
    inputs, sums = ROWS.clone().requires_grad_(), Sums()

    def step(times=1):
        x = torch.cat([inputs] * times)
        (slope,) = torch.autograd.grad((x @ KERNEL).sum(), [x], create_graph=True)
        return torch.autograd.grad(slope.square().sum(-1).mean(), [KERNEL])[0]

    alone = step()
    with sums.multiplied(lambda dtype: torch.tensor(10.0, dtype=dtype)):
        sums.learn(step)
        sums.begin_step()
        torch.testing.assert_close(step(), alone)
    assert sums._kinds == {0: [False]}
