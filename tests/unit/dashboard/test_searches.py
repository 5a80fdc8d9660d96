"""Searches and their trials."""

from __future__ import annotations

import math

import pytest

from dask_train.dashboard.searches import (
    MOST_SEARCHES,
    MOST_TRIALS,
    Axis,
    Searches,
    axes_of,
    best_so_far,
    parallel_lines,
    searches_table,
    values_of,
)
from dask_train.dashboard.traces import Trace


def trial(number, search="s", mode="min", **params):
    return {"search": search, "number": number, "metric": "val_loss", "mode": mode, "params": params}


@pytest.fixture
def searched():
    """Two runs that have trained trials of one search: the scores of all but the last."""
    searches, traces = Searches(), {"a": Trace(), "b": Trace()}
    searches.tell("a", [trial(0, units=16, act="relu"), trial(2, units=64, act="tanh")])
    searches.tell("b", [trial(1, units=32), trial(3, units=8, act="relu")])
    place = {"role": "worker", "rank": 0, "attempt": 0}
    for run, number, values in (("a", 0, (3.0, 2.0, 2.5)), ("b", 1, (1.0,)), ("a", 2, (math.nan, 4.0))):
        for epoch, value in enumerate(values):
            traces[run].score({"trial": number, "epoch": epoch, "val_loss": value, **place})
    return searches["s"], traces, searches


def test_the_value_of_a_trial_is_its_best_so_far(searched):
    search, traces, searches = searched
    assert values_of(search, traces) == {0: 2.0, 1: 1.0, 2: 4.0}
    assert searches_table(searches, traces) == {
        "search": ["s"],
        "trials": [4],
        "scored": [3],
        "metric": ["val_loss"],
        "best": ["1"],
        "of trial": [1],
        "with": ["units 32"],
    }
    search.mode = "max"
    assert values_of(search, traces) == {0: 3.0, 1: 1.0, 2: 4.0}
    assert best_so_far(search, values_of(search, traces))["best"] == [3.0, 3.0, 4.0]


def test_best_so_far_goes_on_from_trial_to_trial(searched):
    search, traces, _ = searched
    points = best_so_far(search, values_of(search, traces))
    assert (points["trial"], points["value"], points["best"]) == ([0, 1, 2], [2.0, 1.0, 4.0], [2.0, 1.0, 1.0])
    assert points["label"][0] == "trial 0: val_loss 2; units 16, act relu"


def test_parallel_coordinates_have_an_axis_for_each_parameter_and_the_value(searched):
    search, traces, _ = searched
    values = values_of(search, traces)
    axes = axes_of(search, values)
    assert [axis.words() for axis in axes] == ["units: 16 to 64", "act: relu, tanh", "val_loss: 1 to 4"]
    lines = parallel_lines(search, values, axes)
    assert [label.partition(":")[0] for label in lines["label"]] == ["trial 0", "trial 2", "trial 1"], "the best last"
    assert lines["ys"][:2] == [[0.0, 0.0, pytest.approx(1 / 3)], [1.0, 1.0, 1.0]]
    assert lines["ys"][2] == [pytest.approx(1 / 3), math.nan, 0.0], "it has no such parameter"
    assert parallel_lines(search, values, axes) == lines, "or the same were sent again and again"
    assert axes_of(search, {}) == []


def test_a_parameter_may_be_called_as_the_metric_is():
    searches, traces = Searches(), {"a": Trace()}
    searches.tell("a", [trial(0, val_loss="mse"), trial(1, val_loss="mae")])
    for number in (0, 1):
        score = {"trial": number, "val_loss": float(number), "role": "worker", "rank": 0, "attempt": 0}
        traces["a"].score(score)
    search = searches["s"]
    values = values_of(search, traces)
    lines = parallel_lines(search, values, axes_of(search, values))
    assert lines["ys"] == [[1.0, 1.0], [0.0, 0.0]]


def test_an_axis_of_one_value_has_it_in_the_middle():
    assert Axis("units", (16,)).place(16) == 0.5
    assert Axis("act", ("relu",)).place("relu") == 0.5


def test_of_very_many_the_newest_searches_and_the_first_trials_are_kept():
    searches = Searches()
    for number in range(MOST_SEARCHES + 1):
        searches.tell("a", [trial(0, search=f"s{number}")])
    assert (len(searches), "s0" in searches) == (MOST_SEARCHES, False)
    searches.tell("a", [trial(number, search="last") for number in range(MOST_TRIALS + 1)])
    assert len(searches["last"].trials) == MOST_TRIALS


def test_a_trial_that_is_begun_again_is_that_of_the_later_run(searched):
    search, traces, searches = searched
    searches.tell("b", [trial(0, units=16)])
    assert 0 not in values_of(search, traces)
