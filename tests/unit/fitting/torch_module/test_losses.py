"""The loss of one batch, with and without weights of its rows; how shares of it add up is in ``test_steps.py``."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch.nn import functional

from dask_train.errors import DataError
from dask_train.fitting.torch_module.losses import BatchLoss, name_of
from dask_train.fitting.torch_module.row_sums import RowSums

torch.manual_seed(0)
OUTPUTS, VALUES, CLASSES = torch.randn(4, 3), torch.randn(4, 3), torch.tensor([0, 2, 1, 0])
WEIGHT = torch.tensor([1.0, 0.0, 3.0, 2.0])
REPEATED = [0, 2, 2, 2, 3, 3]  # the rows as often as they weigh


class Own(torch.nn.CrossEntropyLoss):
    """Of the user's own."""


def of_parts(loss, outputs, y, weight):
    """The loss as shares of the rows add up to it; that of all rows where nothing is known of its parts."""
    by_rows = RowSums.of(loss, weighted=True)
    if by_rows is None:
        return BatchLoss(loss, weighted=True)(outputs, y, weight)
    parts = [by_rows.parts(outputs[rows], y[rows], weight[rows]) for rows in (slice(1), slice(1, None))]
    total = sum(part.values.sum() for part in parts)
    return total / sum(part.weight for part in parts) if by_rows.divides else total


@pytest.mark.parametrize(
    ("loss", "y"),
    [
        (torch.nn.MSELoss(), VALUES),
        (torch.nn.MSELoss(reduction="sum"), VALUES),
        (partial(functional.huber_loss, delta=0.3), VALUES),
        (torch.nn.CrossEntropyLoss(label_smoothing=0.1), CLASSES),
        (torch.nn.CrossEntropyLoss(), VALUES.softmax(1)),
        (torch.nn.CrossEntropyLoss(ignore_index=0), CLASSES),
        (torch.nn.CrossEntropyLoss(ignore_index=0, reduction="sum"), CLASSES),
        (partial(functional.cross_entropy, ignore_index=1), CLASSES),
        (Own(ignore_index=0, label_smoothing=0.1), CLASSES),
    ],
)
def test_a_row_counts_as_often_as_it_weighs(loss, y):
    wanted = loss(OUTPUTS[REPEATED], y[REPEATED])
    for found in (BatchLoss(loss, weighted=True)(OUTPUTS, y, WEIGHT), of_parts(loss, OUTPUTS, y, WEIGHT)):
        torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("kind", [torch.nn.CrossEntropyLoss, Own])
def test_of_rows_with_many_targets_those_that_are_left_out_weigh_nothing(kind):
    outputs, y = torch.randn(3, 5, 6), torch.randint(5, (3, 6))
    y[0, 2:], y[2, :1] = -100, -100  # shorter texts
    for weight, rows in ((torch.ones(3), [0, 1, 2]), (torch.tensor([2, 0, 1]), [0, 0, 2])):
        wanted = kind()(outputs[rows], y[rows])
        torch.testing.assert_close(BatchLoss(kind(), weighted=True)(outputs, y, weight), wanted)
        torch.testing.assert_close(of_parts(kind(), outputs, y, weight), wanted)
    assert BatchLoss(kind(), weighted=True)(outputs, y, torch.ones(3)).dtype == torch.float32


def test_a_batch_that_weighs_nothing_has_no_mean():
    for y, weight in ((CLASSES, 0 * WEIGHT), (torch.full((4,), -100), WEIGHT), (CLASSES, WEIGHT - WEIGHT.mean())):
        with pytest.raises(DataError, match="The sample weights of a batch add up to 0"):
            BatchLoss(torch.nn.CrossEntropyLoss(), weighted=True)(OUTPUTS, y, weight)
    of_none = BatchLoss(torch.nn.MSELoss(reduction="sum"), weighted=True)(OUTPUTS, VALUES, 0 * WEIGHT)
    assert of_none.item() == 0, "nor needs one, as a sum"


def whole(outputs, y, reduction="mean"):
    return (outputs - y).square().mean()


@pytest.mark.parametrize(
    ("loss", "weight", "error", "text"),
    [
        (torch.nn.MSELoss(reduction="none"), WEIGHT, TypeError, "reduces by 'mean' or 'sum'; MSELoss does not"),
        (torch.nn.KLDivLoss(reduction="batchmean"), WEIGHT, TypeError, "KLDivLoss does not"),
        (lambda outputs, y: 0, WEIGHT, TypeError, "<lambda> does not"),
        (torch.nn.CrossEntropyLoss(weight=torch.ones(3)), WEIGHT, ValueError, "CrossEntropyLoss has weights of its"),
        (partial(functional.cross_entropy, weight=torch.ones(3)), WEIGHT, ValueError, "cross_entropy has weights of"),
        (whole, WEIGHT, ValueError, r"a tensor of shape \(\) with reduction='none' of 4 rows"),
        (torch.nn.MSELoss(), WEIGHT[:, None], ValueError, r"sample_weight has rows of shape \(1,\)"),
    ],
)
def test_what_can_not_be_weighed(loss, weight, error, text):
    with pytest.raises(error, match=text):
        BatchLoss(loss, weighted=True)(OUTPUTS, VALUES, weight)


def test_the_loss_of_a_batch_is_one_number():
    targets_alone = BatchLoss(lambda outputs: outputs.mean(0, keepdim=True).mean(1), weighted=False)
    assert targets_alone(OUTPUTS, None, None).shape == ()
    by_element = torch.nn.MSELoss(reduction="none")
    for given, told in ((lambda *_: 0.5, "a float"), (by_element, r"a tensor of shape \(4, 3\)")):
        with pytest.raises(ValueError, match=f"The loss gave {told} of a batch; it has to be one number"):
            BatchLoss(given, weighted=False)(OUTPUTS, VALUES, None)


def test_names_of_losses():
    assert name_of(partial(partial(functional.mse_loss), reduction="sum")) == "mse_loss"
    assert name_of(Own()) == "Own"
