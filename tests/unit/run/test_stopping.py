"""Rules to stop by: what they say about scores, and what they refuse to be."""

from __future__ import annotations

import math
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_train.run.stopping import (
    AnyOf,
    Condition,
    Patience,
    RunProgress,
    StopRule,
    Threshold,
    check_stop,
    rule_within_epochs,
    rules_of_epochs,
)

START = RunProgress(steps=0, seconds=0.0)


def scores(name, *values, role="scorer", rank=0):
    return [{name: value, "role": role, "rank": rank, "attempt": 1, "time": 1e9 + i} for i, value in enumerate(values)]


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


def test_patience_does_not_count_reports_that_come_again_after_a_restart():
    def report(epoch, value, attempt, rank=0, **more):
        return {"val_loss": value, "epoch": epoch, "role": "worker", "rank": rank, "attempt": attempt, **more}

    before = [report(epoch, value, 0) for epoch, value in enumerate([0.9, 0.5, 0.3, 0.4])]
    again = [report(1, 0.5, 1), report(2, 0.3, 1, step=4, num_steps=8), report(2, 0.3, 1), report(3, 0.4, 1)]
    rule, found = Patience("val_loss", 3), before + again
    assert rule.met(found, START) == ""
    found += [report(4, 0.5, 2, rank=1), report(4, 0.5, 1)]
    for _ in range(2):
        assert rule.met(found, START, since=8) == "val_loss was not better than 0.3 in 3 reports (worker 0)"
    assert rule.met([*before, *again, report(2, 0.3, 2), report(3, 0.4, 2), report(4, 0.2, 2)], START) == ""


@pytest.mark.parametrize(
    ("first", "second", "counted"),
    [
        ([0, 1, 2], [1, 2, 3, 4, 5], 3),
        ([0, 1, 2, 2, 2], [2, 2, 2, 2, 3, 3], 3),  # several reports an epoch, and a loss within one
        ([0, 1, 2, 3, 0, 1], [0, 1, 2, 3], 4),  # folds: those of the second one were not there
        ([0, 1, 2, 3], [0, 1, 2, 3, 0, 1, 2], 3),
    ],
)
def test_patience_counts_the_reports_that_no_earlier_attempt_has_made(first, second, counted):
    def reports(epochs, attempt):
        return [{"x": 1.0, "epoch": epoch, "role": "worker", "rank": 0, "attempt": attempt} for epoch in epochs]

    found, since = reports(first, 0), len(first)
    for num_waited, reason in ((counted, True), (counted + 1, False)):
        rule = Patience("x", since - 1 + num_waited)
        assert bool(rule.met([*found, *reports(second, 1)], START)) is reason


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


def test_patience_looks_at_each_score_once():
    rule, found = Patience("loss", 3), Counting()
    Counting.looks = 0
    for number in range(200):
        found.extend(scores("loss", 1.0 / (number + 1)))
        assert rule.met(found, START, since=number) == ""
    assert Counting.looks <= 3 * len(found)
    assert pickle.loads(pickle.dumps(rule)) == rule


def test_patience_may_be_asked_of_several_runs_in_turn():
    rule, falling, rising = Patience("loss", 3), [], []
    for number in range(4):
        falling += scores("loss", 4.0 - number)
        rising += scores("loss", 4.0 + number)
        assert rule.met(falling, START, since=number) == ""
        reason = rule.met(rising, START, since=number)
    assert reason == "loss was not better than 4 in 3 reports (scorer 0)"


def test_patience_takes_no_run_for_another_whose_scores_have_lain_there():
    rule, first, second = Patience("loss", 1), scores("loss", 1.0), scores("loss", 5.0, 4.0)
    assert rule.met(first, START) == ""
    del first
    again = second[:]  # which Python puts where the first list was, if nobody has that any more
    assert rule.met(again, START, since=1) == "", "5 and 4 get better; 1 and 4 do not"


@pytest.mark.parametrize(
    ("given", "of_epochs", "within"),
    [
        (None, (), None),
        (Patience("loss", 3), (Patience("loss", 3),), None),
        ("val_loss < 0.1", (Threshold("val_loss < 0.1"),), None),
        ("epoch >= 3", (Threshold("epoch >= 3"),), None),
        ("loss < 0.1", (Threshold("loss < 0.1"),), Threshold("loss < 0.1")),
        ("val_loss < 0.1 or seconds > 9", (), Threshold("val_loss < 0.1 or seconds > 9")),
        (["steps > 3", Patience("loss", 3)], (Patience("loss", 3),), Threshold("steps > 3")),
        (["loss < 1", "steps > 3"], (Threshold("loss < 1"),), AnyOf((Threshold("loss < 1"), Threshold("steps > 3")))),
        (len, (), Condition(len)),
    ],
)
def test_which_rules_training_loops_are_asked(given, of_epochs, within):
    rule = check_stop(given)
    assert (rules_of_epochs(rule), rule_within_epochs(rule)) == (of_epochs, within)
