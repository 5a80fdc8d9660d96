"""Logs as scores."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_train.role.messaging import RESERVED_NAMES
from dask_train.trainers.common.score_names import check_stop_numbers, score_name, scores_of


@pytest.mark.parametrize("name", [*RESERVED_NAMES, "epoch", "step", "num_steps", "trial"])
def test_names_that_mean_something_in_a_score_are_told_apart(name):
    assert scores_of({name: 1}) == {f"{name}_metric": 1.0}


@given(st.text("_acehiklmnoprst"))
def test_no_metric_takes_the_place_of_what_a_report_adds(name):
    assert score_name(name) not in (*RESERVED_NAMES, "epoch", "step", "num_steps", "trial")


def test_numbers_are_taken_and_nothing_else():
    logs = {"a": 1, "b": np.float32(0.5), "c": "0.25", "d": "text", "e": None, "f": [1, 2], "g": np.array(2.0)}
    logs |= {"of one": np.array([3.0]), "of two": np.zeros(2)}
    assert scores_of(logs) == {"a": 1.0, "b": 0.5, "c": 0.25, "g": 2.0, "of one": 3.0}
    assert {type(value) for value in scores_of(logs).values()} == {float}
    assert math.isnan(scores_of({"loss": math.nan})["loss"])


def test_no_logs_are_no_scores():
    assert scores_of(None) == scores_of({}) == {}


def test_a_rule_that_looks_at_several_numbers_is_told_so():
    history = {"f1": [np.zeros(2)], "one": [np.zeros(1)], "loss": [0.5], "val_loss": []}
    check_stop_numbers(["one", "loss", "val_loss", "epoch"], history)
    with pytest.raises(ValueError, match=r"^stop looks at f1, which is not one number.* take average='macro'"):
        check_stop_numbers(["loss", "f1"], history)
