"""What ``checkpoint=`` may be, and when a checkpoint is due."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_train.checkpoint.policy import Checkpoint, check_best_of_train, check_checkpoint, is_due


@pytest.mark.parametrize(
    ("settings", "error", "text"),
    [
        ({"url": ""}, ValueError, "pass a folder or a URL"),
        ({"url": 3}, ValueError, "checkpoint is 3; pass a folder"),
        ({"every_steps": 0}, ValueError, "every_steps is 0; .* at least 1, or None"),
        ({"every_steps": 1.5}, ValueError, "every_steps is 1.5"),
        ({"every_steps": True}, ValueError, "every_steps is True"),
        ({"every_s": 0}, ValueError, "every_s is 0; pass seconds above 0"),
        ({"every_s": -1.0}, ValueError, "every_s is -1.0"),
        ({"every_s": math.inf}, ValueError, "every_s is inf"),
        ({"every_s": math.nan}, ValueError, "every_s is nan"),
        ({"every_s": "60"}, ValueError, "every_s is '60'"),
        ({"keep": 0}, ValueError, "keep is 0; .* at least 1"),
        ({"keep": True}, ValueError, "keep is True"),
        ({"best": ""}, ValueError, "best is ''; pass the name of a score"),
        ({"best": "loss", "mode": "less"}, ValueError, "mode is 'less'; it is 'auto', 'min' or 'max'"),
        ({"best": "loss", "restore_best": 1}, TypeError, "restore_best is 1; it is True or False"),
        ({"restore_best": True}, ValueError, "restore_best=True is of the best checkpoint; say by which score"),
        ({"mode": "max"}, ValueError, "mode='max' is of the best checkpoint"),
    ],
)
def test_what_is_no_checkpoint(settings, error, text):
    with pytest.raises(error, match=text):
        Checkpoint(**{"url": "there", **settings})


def test_a_place_alone_is_a_checkpoint():
    assert check_checkpoint(None, False) is None
    assert check_checkpoint("there", False) == Checkpoint("there")
    assert check_checkpoint(Path("there"), True).url == Path("there")
    given = Checkpoint("there", keep=5)
    assert check_checkpoint(given, True) is given


def test_there_has_to_be_something_to_go_on_with():
    with pytest.raises(ValueError, match=r"say where they are kept: checkpoint='a folder or URL'"):
        check_checkpoint(None, True)
    with pytest.raises(TypeError, match=r"resume is 'new'; it is True or False, or 'new_learning_rate'."):
        check_checkpoint("there", "new", words=("new_learning_rate",))
    assert check_checkpoint("there", "new_learning_rate", words=("new_learning_rate",)) == Checkpoint("there")
    with pytest.raises(TypeError, match=r"resume is 'new_learning_rate'; it is True or False."):
        check_checkpoint("there", "new_learning_rate")


def test_without_a_model_what_is_best_has_to_be_said():
    check_best_of_train(None)
    check_best_of_train(Checkpoint("there"))
    check_best_of_train(Checkpoint("there", best="val_loss"))
    check_best_of_train(Checkpoint("there", best="skill", mode="max"))
    with pytest.raises(ValueError, match=r"'skill', which does not say .* Pass mode='min' or mode='max'"):
        check_best_of_train(Checkpoint("there", best="skill"))
    with pytest.raises(ValueError, match=r"restore_best=True is for dt.fit"):
        check_best_of_train(Checkpoint("there", best="loss", restore_best=True))


@pytest.mark.parametrize(
    ("every_steps", "every_s", "steps", "last", "seconds", "due"),
    [
        (10, None, 9, 0, 1e9, False),
        (10, None, 10, 0, 0.0, True),
        (10, None, 19, 10, 0.0, False),
        (10, None, 25, 19, 0.0, True),
        (None, 60.0, 10**9, 0, 59.9, False),
        (None, 60.0, 0, 0, 60.0, True),
        (10, 60.0, 11, 10, 60.0, True),
        (None, None, 10**9, 0, 1e9, False),
    ],
)
def test_when_one_is_due(every_steps, every_s, steps, last, seconds, due):
    assert is_due(every_steps, every_s, steps=steps, last_steps=last, seconds=seconds) is due


@given(st.integers(1, 20), st.lists(st.integers(1, 30), min_size=1))
def test_no_multiple_is_passed_by(every, strides):
    """However many steps are taken at a time, one is due where a multiple was passed since the last."""
    steps = last = 0
    for stride in strides:
        steps += stride
        passed = any(step % every == 0 for step in range(last + 1, steps + 1))
        assert is_due(every, None, steps=steps, last_steps=last, seconds=0.0) is passed
        last = steps if passed else last


def test_storage_options_are_of_urls_and_not_shown():
    kept = Checkpoint("s3://there", storage_options={"key": "user-1234"})
    assert "user-1234" not in repr(kept)
    with pytest.raises(TypeError, match="storage_options is a str"):
        Checkpoint("s3://there", storage_options="user-1234")
    with pytest.raises(ValueError, match="storage_options are for"):
        Checkpoint("there", storage_options={"key": "user-1234"})
