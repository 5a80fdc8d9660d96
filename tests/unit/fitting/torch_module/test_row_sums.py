"""Which losses are sums over rows, of which outputs and targets; that they add up is in ``test_steps.py``."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional

from dask_train.fitting.torch_module.row_sums import RowSums

ROWS = 4


def compares(outputs, y):
    """A mean over pairs of rows."""
    return functional.mse_loss(outputs, y.flip(0))


class Own(nn.CrossEntropyLoss):
    """Of the user's own."""


def hooked():
    loss = nn.MSELoss()
    loss.register_forward_pre_hook(lambda *_: None)
    return loss


def patched():
    loss = nn.MSELoss()
    loss.forward = lambda outputs, y: ((outputs - y.mean(0)) ** 2).mean()
    return loss


@pytest.mark.parametrize(
    "loss",
    [
        Own(),
        hooked(),
        patched(),
        nn.MSELoss(reduction="none"),
        nn.TripletMarginLoss(),
        compares,
        partial(functional.mse_loss, torch.zeros(1)),
        partial(functional.mse_loss, weight=torch.ones(1)),
        partial(functional.mse_loss, size_average=False),
        partial(functional.cross_entropy, reduction="none"),
    ],
)
def test_of_others_nothing_is_known(loss):
    assert RowSums.of(loss, weighted=False) is None


@pytest.mark.parametrize(
    ("loss", "outputs", "y", "takes"),
    [
        (nn.MSELoss(), (3,), (3,), True),
        (nn.MSELoss(), (), (), True),
        (nn.MSELoss(), (1,), (), False),  # compares each row with each
        (nn.BCEWithLogitsLoss(pos_weight=torch.ones(3)), (3,), (3,), True),
        (nn.BCEWithLogitsLoss(pos_weight=torch.ones(ROWS)), (), (), False),
        (nn.BCELoss(weight=torch.ones(ROWS, 1)), (3,), (3,), False),
        (nn.CrossEntropyLoss(), (3,), (), True),
        (nn.CrossEntropyLoss(), (3, 5), (5,), True),
        (nn.CrossEntropyLoss(), (), (), False),  # the rows are classes
    ],
)
def test_rows_are_looked_at_one_by_one(loss, outputs, y, takes):
    found = RowSums.of(loss, weighted=False)
    assert found.is_by_row(torch.zeros(ROWS, *outputs), torch.zeros(ROWS, *y)) == takes
    assert not found.is_by_row((torch.zeros(ROWS, *outputs),), torch.zeros(ROWS, *y))
    assert not found.is_by_row(torch.zeros(ROWS, *outputs), None)


def test_a_part_without_rows_adds_nothing():
    found = RowSums.of(nn.CrossEntropyLoss(ignore_index=1), weighted=False)
    outputs = torch.zeros(ROWS, 3, requires_grad=True)
    none = found.parts(outputs[:0], torch.zeros(0, dtype=torch.long), None)
    assert (none.values.sum().item(), none.weight) == (0.0, 0.0)
    assert found.parts(outputs, torch.tensor([0, 1, 1, 2]), None).weight == 2.0
    assert RowSums.of(nn.KLDivLoss(reduction="batchmean"), weighted=True) is None
