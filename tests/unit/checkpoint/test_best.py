"""Which of two checkpoints is the better one, and by what."""

from __future__ import annotations

import math

import pytest

from dask_train.checkpoint.best import Best, check_best, is_better, mode_by_name
from dask_train.errors import CheckpointError

BEST = Best(of="val_loss", mode="min", score=0.5, checkpoint="checkpoint-00000001")


@pytest.mark.parametrize(
    ("value", "than", "mode", "better"),
    [
        (1.0, None, "min", True),
        (1.0, None, "max", True),
        (0.9, 1.0, "min", True),
        (1.1, 1.0, "max", True),
        (1.0, 1.0, "min", False),
        (1.0, 1.0, "max", False),
        (1.1, 1.0, "min", False),
        (math.nan, None, "min", False),
        (math.nan, 1.0, "max", False),
        (math.inf, 1.0, "max", True),
    ],
)
def test_of_equal_ones_the_first_is_best_and_what_is_no_number_never_is(value, than, mode, better):
    assert is_better(value, than, mode=mode) is better


@pytest.mark.parametrize(
    ("name", "mode", "found"),
    [
        ("loss", "auto", "min"),
        ("val_loss", "auto", "min"),
        ("val_loss", "max", "max"),
        ("accuracy", "auto", "auto"),
        ("gloss", "auto", "auto"),
        (None, "auto", "auto"),
    ],
)
def test_only_a_loss_tells_its_direction_by_its_name(name, mode, found):
    assert mode_by_name(name, mode) == found


def test_the_best_so_far_goes_on_where_the_same_is_looked_for():
    assert check_best(BEST, "val_loss", "min", "there") is BEST
    assert check_best(BEST, "val_loss", "auto", "there") is BEST
    assert check_best(BEST, None, "auto", "there") is None
    assert check_best(None, "accuracy", "max", "there") is None


@pytest.mark.parametrize(("name", "mode"), [("val_loss", "max"), ("accuracy", "max"), ("accuracy", "auto")])
def test_the_best_by_another_score_is_refused(name, mode):
    with pytest.raises(
        CheckpointError, match=r"the min of 'val_loss', and .*Pass best='val_loss' and mode='min' as then"
    ):
        check_best(BEST, name, mode, "there")
