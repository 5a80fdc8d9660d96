"""What ``checkpoint=`` of ``fit`` may ask for."""

from __future__ import annotations

import pytest

from dask_train.checkpoint.policy import Checkpoint
from dask_train.fitting.checks import check_best_of_fit


@pytest.mark.parametrize(
    ("best", "validates", "ps"),
    [(None, False, 2), ("loss", False, 0), ("val_loss", True, 0), ("loss", True, 0)],
)
def test_a_score_of_the_model_that_is_kept_may_choose_it(tmp_path, best, validates, ps):
    check_best_of_fit(Checkpoint(tmp_path, best=best), validates=validates, ps=ps)


def test_without_checkpoints_there_is_nothing_to_ask():
    check_best_of_fit(None, validates=False, ps=2)


@pytest.mark.parametrize(
    ("best", "validates", "ps", "says"),
    [
        ("val_loss", False, 0, r"by 'val_loss', which nothing computes: pass validation_data or validation_split"),
        ("val_loss", False, 1, "which nothing computes"),
        ("val_loss", True, 1, r"with ps=1 the weights change while they are scored.* Leave best= out, or pass ps=0"),
        ("loss", True, 2, "with ps=2 the weights change"),
    ],
)
def test_a_score_that_can_not_come_or_is_of_other_weights_is_refused(tmp_path, best, validates, ps, says):
    with pytest.raises(ValueError, match=says):
        check_best_of_fit(Checkpoint(tmp_path, best=best), validates=validates, ps=ps)
