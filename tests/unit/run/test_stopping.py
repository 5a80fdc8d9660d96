"""Rules to stop by: what they say about scores, and what they refuse to be."""

from __future__ import annotations

import math
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_train.run.stopping import AnyOf, Condition, Patience, RunProgress, StopRule, Threshold, check_stop

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


RULES = [
    "a < 0",
    "a < 0 and b > 0",
    "a < 0 and steps > 5",
    "b > 1 or a < -1 and b < 0",
    Patience("a", 2),
    Patience("b", 3),
]


@given(
    rule=st.sampled_from(RULES),
    values=st.lists(st.dictionaries(st.sampled_from("ab"), st.floats(-2, 2) | st.just(math.nan)), max_size=12),
    cuts=st.lists(st.integers(0, 12), max_size=4),
)
def test_asked_often_or_once_says_the_same(rule, values, cuts):
    """Whatever arrives together, and whether or not the rule is told what is new."""
    progress = RunProgress(steps=9, seconds=1)
    rule = check_stop(rule)
    since, reason = 0, ""
    for cut in [*sorted(min(cut, len(values)) for cut in cuts), len(values)]:
        reason = rule.met(values[:cut], progress, since=since)
        if reason:
            assert reason == rule.met(values[:cut], progress)
            break
        since = cut
    alone = next((i for i in range(len(values) + 1) if rule.met(values[:i], progress)), None)
    assert bool(reason) == (alone is not None)
    assert reason == (rule.met(values[:alone], progress) if reason else "")


def early_stopping(values, patience, min_delta, grows):
    """The count of reports at which Keras's EarlyStopping stops (keras 3.15, callbacks/early_stopping.py)."""
    best, wait = None, 0
    for epoch, value in enumerate(values):
        wait += 1
        if best is None or (value - min_delta > best if grows else value + min_delta < best):
            best, wait = value, 0
        elif wait >= patience and epoch > 0:
            return epoch + 1
    return None


@given(
    values=st.lists(st.integers(-8, 8).map(lambda eighths: eighths / 8), max_size=20),
    patience=st.integers(0, 4),
    min_delta=st.sampled_from([0.0, 0.125, 0.5]),
    name=st.sampled_from(["val_loss", "val_accuracy", "roc_auc"]),
)
def test_patience_is_that_of_keras(values, patience, min_delta, name):
    rule = Patience(name, patience, min_delta=min_delta)
    counts = (n for n in range(len(values) + 1) if rule.met(scores(name, *values[:n]), START, since=max(0, n - 1)))
    assert next(counts, None) == early_stopping(values, patience, min_delta, name != "val_loss")


def test_patience_says_what_it_waited_for():
    between = [*scores("val_loss", 1, 0.5), {"loss": 0.1}, *scores("val_loss", 0.5, 0.75, rank=1)]
    assert Patience("val_loss", 2).met(between, START) == "val_loss was not better than 0.5 in 2 reports (scorer 1)"
    assert Patience("val_loss", 2).met(between, START, since=5) == ""  # nothing new to judge
    assert Patience("val_acc", 1).met(scores("val_acc", 0.5, 0.25), START).startswith("val_acc was not better than 0.5")
    assert Patience("val_acc", 1, mode="min").met(scores("val_acc", 0.5, 0.25), START) == ""
    assert Patience("x", 1, mode="max").met(scores("x", 0.5, 0.75), START) == ""
    assert Patience("x", 2).met(scores("x", math.nan, math.nan), START) == "x was not a number in 2 reports (scorer 0)"
    assert Patience("x", 2).met(scores("x", math.nan, 1, 0.5), START) == ""
    assert Patience("x", 1).met(scores("x", math.nan), START) == ""  # as in Keras, never at the first report


@pytest.mark.parametrize(
    ("arguments", "settings", "error", "text"),
    [
        ((3, 3), {}, TypeError, r"monitor is 3, .*like Patience\('val_loss', 3\)"),
        (("", 3), {}, TypeError, "monitor is ''"),
        (("x", 1.5), {}, TypeError, r"patience is 1\.5, but it is a number of reports"),
        (("x", True), {}, TypeError, "patience is True"),
        (("x", -1), {}, ValueError, r"patience is -1, .* Use 1 or more"),
        (("x", 1), {"min_delta": -0.1}, ValueError, r"min_delta is -0\.1, but it is a finite number, 0 or more"),
        (("x", 1), {"min_delta": "a"}, ValueError, "min_delta is 'a'"),
        (("x", 1), {"min_delta": math.inf}, ValueError, "min_delta is inf"),
        (("x", 1), {"mode": "up"}, ValueError, "mode is 'up', but it is 'min', 'max' or 'auto'"),
    ],
)
def test_patience_is_checked(arguments, settings, error, text):
    with pytest.raises(error, match=text):
        Patience(*arguments, **settings)


def good_enough(found):
    return found[-1]["loss"] < 0.1


def test_a_function_of_the_scores():
    rule = check_stop(good_enough)
    assert rule.met([], START) == ""
    assert rule.met([{"acc": 1}], START) == ""
    assert rule.met([{"loss": 1}], START) == ""
    assert rule.met([{"loss": 0.01}], START) == "good_enough(scores) is true"
    assert "lambda" in check_stop(lambda found: True).met([], START)
    with pytest.raises(TypeError, match="not supported between"):
        rule.met([{"loss": "low"}], START)


def test_any_of_gives_the_first_reason():
    rule = check_stop(["val_loss < 0.1", Patience("val_loss", 2), [good_enough]])
    assert isinstance(rule, AnyOf)
    assert rule.met(scores("val_loss", 1), START) == ""
    assert rule.met(scores("val_loss", 1, 0.05), START).startswith("val_loss is 0.05")
    assert rule.met(scores("val_loss", 1, 1, 1), START).startswith("val_loss was not better than 1 in 2")
    assert rule.met([{"loss": 0.05}], START) == "good_enough(scores) is true"


def test_what_stop_may_be():
    assert check_stop(None) is None
    assert check_stop("a < 1") == Threshold("a < 1")
    assert check_stop(Patience("a", 1)) == Patience("a", 1)
    assert check_stop(good_enough) == Condition(good_enough)


async def later(found):
    return True


@pytest.mark.parametrize("stop", [0.1, True, Patience, {"val_loss": 0.1}, later, [1]])
def test_what_stop_may_not_be(stop):
    with pytest.raises(TypeError, match=r"stop is .*, which is no rule to stop by\. Pass text like 'val_loss < 0\.1'"):
        check_stop(stop)


@pytest.mark.parametrize("stop", [[], [None]])
def test_a_list_holds_rules(stop):
    with pytest.raises(ValueError, match="a list holds one rule or more"):
        check_stop(stop)


@pytest.mark.parametrize("rule", [Threshold("a < 1 and seconds > 5"), Patience("a", 1), AnyOf((Threshold("a < 1"),))])
def test_rules_survive_pickling(rule):
    again = pickle.loads(pickle.dumps(rule))
    assert again == rule
    assert again.met([{"a": 0}], START) == rule.met([{"a": 0}], START)


def test_the_base_is_no_rule():
    with pytest.raises(NotImplementedError, match=r"give it a method met\(\)"):
        StopRule().met([], START)


class Counting(list):
    looks = 0

    def __getitem__(self, index):
        Counting.looks += 1
        return super().__getitem__(index)


def test_what_was_seen_is_not_read_again():
    many = Counting(scores("loss", *[1.0] * 10_000))
    Counting.looks = 0
    for rule in ("loss < 0.1", "loss < 0.1 and loss > 0", "loss < 2 and steps > 9", Patience("val_loss", 1)):
        assert check_stop(rule).met(many, START, since=9_990) == ""
    assert Counting.looks < 100
