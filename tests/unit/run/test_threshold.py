"""Rules that are written as text: what they say about scores, and what is no such rule."""

from __future__ import annotations

import math

import pytest

from dask_train.run.stopping import RunProgress, Threshold

START = RunProgress(steps=0, seconds=0.0)


def scores(name, *values, role="scorer", rank=0):
    return [{name: value, "role": role, "rank": rank, "attempt": 1, "time": 1e9 + i} for i, value in enumerate(values)]


@pytest.mark.parametrize(
    ("text", "values", "reason"),
    [
        ("val_loss < 0.1", [0.5, 0.0931], "val_loss is 0.0931 < 0.1 (scorer 0)"),
        ("val_loss < 0.1", [0.5, 0.1], ""),
        ("val_loss <= 0.1", [0.5, 0.1], "val_loss is 0.1 <= 0.1 (scorer 0)"),
        ("val_loss > 0.1", [0.1, 1], "val_loss is 1 > 0.1 (scorer 0)"),
        ("val_loss>=-1e-3", [-1, -0.001], "val_loss is -0.001 >= -0.001 (scorer 0)"),
        ("  val_loss < +.5  ", [0.25], "val_loss is 0.25 < 0.5 (scorer 0)"),
        ("val_loss < 0.1", [0.09999999999], "val_loss is 0.09999999999 < 0.1 (scorer 0)"),
        ("val_loss > 1200", [123456.7], "val_loss is 123457 > 1200 (scorer 0)"),
        ("val_loss < 0.1", [math.nan], ""),
        ("val_loss > 0.1", [math.nan, "0.5", None, [1, 2]], ""),
        ("val_loss < 0.1", [0.01, 0.5], "val_loss is 0.01 < 0.1 (scorer 0)"),  # each report counts
        ("loss < 0.1", [0.01], ""),
    ],
)
def test_a_comparison(text, values, reason):
    assert Threshold(text).met(scores("val_loss", *values), START) == reason


@pytest.mark.parametrize("name", ["val/loss", "layer.0-loss", "F1", "größe", "_x"])
def test_names(name):
    assert Threshold(f"{name} < 1").met([{name: 0}], START) == f"{name} is 0 < 1"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "soon",
        "val_loss",
        "val_loss < ",
        "< 1",
        "0.1 > val_loss",
        "loss == 1",
        "loss < x",
        "loss < nan",
        "a <b< 1",
        "loss < 0.1 and",
        "or loss < 1",
        "loss < 1 or or < 2",
        "(loss < 1)",
        "loss < 1, acc > 2",
        "val loss < 1",
        "a->3",
    ],
)
def test_text_that_is_no_rule(text):
    with pytest.raises(ValueError, match=r"is no rule to stop by: .* is not 'name < number'\. .*'val_loss < 0\.1' or"):
        Threshold(text)


@pytest.mark.parametrize("name", ["role", "rank", "attempt", "time"])
def test_where_a_score_is_from_is_no_score(name):
    with pytest.raises(ValueError, match=rf"{name} tells where a score is from and is no score\. Compare"):
        Threshold(f"loss < 1 or {name} > 3")


def test_progress_is_compared_without_scores():
    rule = Threshold("val_loss < 0.1 or seconds > 600 or steps >= 1000")
    assert rule.met([], RunProgress(steps=999, seconds=600)) == ""
    assert rule.met([], RunProgress(steps=5, seconds=612.3)) == "seconds is 612.3 > 600"
    assert rule.met([], RunProgress(steps=1000, seconds=1)) == "steps is 1000 >= 1000"


@pytest.mark.parametrize("name", ["steps", "seconds"])
def test_a_score_of_that_name_is_what_is_meant_where_roles_report_one(name):
    rule, late = Threshold(f"{name} >= 100"), {"steps": 500, "seconds": 500.0}
    assert rule.met(scores("loss", 2.0), RunProgress(**late)) == f"{name} is 500 >= 100"
    own = RunProgress(**late, reported=frozenset({name}))
    assert rule.met(scores(name, 3), own) == ""
    assert rule.met(scores(name, 3, 100), own, since=1) == f"{name} is 100 >= 100 (scorer 0)"
    both = Threshold(f"loss < 1 and {name} >= 100")
    assert both.met([*scores(name, 3), *scores("loss", 0.5)], own) == ""
    assert both.met([*scores(name, 300), *scores("loss", 0.5)], own, since=1)


def test_and_binds_tighter_than_or():
    rule = Threshold("a < 1 and b < 1 or c < 1")
    assert rule.met([{"c": 0}], START) == "c is 0 < 1"
    assert rule.met([{"a": 0, "c": 2}], START) == ""
    assert rule.met([{"a": 0}, {"b": 0}], START) == "a is 0 < 1 and b is 0 < 1"
    other = Threshold("c < 1 or a < 1 and b < 1")
    assert other.met([{"c": 0}], START) == "c is 0 < 1"
    assert other.met([{"a": 0, "c": 2}], START) == ""


def test_and_takes_the_latest_value_of_each():
    rule = Threshold("loss < 1 and acc > 0.5")
    apart = [*scores("loss", 0.5, 2), *scores("acc", 0.9)]
    assert rule.met(apart, START) == ""
    again = [*apart, *scores("loss", 0.25, role="worker", rank=2)]
    assert rule.met(again, START) == "loss is 0.25 < 1 (worker 2) and acc is 0.9 > 0.5 (scorer 0)"
    assert rule.met([*again, *scores("loss", 7)], START)  # it was met when the last but one arrived


def test_and_with_progress_waits_for_both():
    rule = Threshold("steps > 100 and loss < 1")
    seen = scores("loss", 2, 0.5)
    assert rule.met(seen, RunProgress(steps=100, seconds=1)) == ""
    assert (
        rule.met(seen, RunProgress(steps=101, seconds=1), since=2)
        == "steps is 101 > 100 and loss is 0.5 < 1 (scorer 0)"
    )
    assert rule.met(scores("loss", 0.5, 2), RunProgress(steps=101, seconds=1), since=2) == ""


def test_an_epoch_of_fit_counts_when_it_has_ended():
    within = {"epoch": 2, "step": 1, "num_steps": 5, "loss": 0.5}
    ended = {"epoch": 2, "num_steps": 5, "loss": 0.5}
    of_the_user = {"epoch": 2, "step": 1}
    rule = Threshold("epoch >= 2")
    assert not rule.met([within], RunProgress(steps=0, seconds=0))
    for score in (ended, of_the_user):
        assert rule.met([within, score], RunProgress(steps=0, seconds=0)) == "epoch is 2 >= 2"
    assert Threshold("epoch >= 2 and loss < 1").met([within, ended], RunProgress(steps=0, seconds=0), since=1)
    assert not Threshold("loss < 1 and epoch >= 2").met([within], RunProgress(steps=0, seconds=0))
