"""What the page shows of runs beside each other."""

from __future__ import annotations

import math

import pytest

from dask_train.dashboard.compared import (
    MOST_COMPARED,
    compared_lines,
    compared_runs,
    differing_settings,
    names_of_scores,
    results,
    table_html,
)
from dask_train.dashboard.traces import MOST_POINTS, Trace
from dask_train.scheduler.runs import KnownRun


def a_run(name, ended=160.0, rows=None, **settings):
    run = KnownRun(name, "me", {"roles": {"worker": 2}, "settings": settings}, started=100.0, ended=ended)
    run.summary = {
        "phase": "running",
        "outcome": "all epochs are trained" if ended else "",
        "roles": [["worker", rank, "running", 0, f"tcp://h{rank // 2}:1", 7, "", 3] for rank in range(4)],
        "rows": rows or {},
    }
    return run


def a_trace(scores, *, attempt=0, trace=None, began=110.0):
    trace = trace or Trace(running_since=began)
    for number, score in enumerate(scores):
        trace.score({"role": "worker", "rank": 0, "attempt": attempt, **score}, began + 10.0 * (number + 1))
    return trace


@pytest.fixture
def two():
    """Two runs: one that was validated, and one that was not."""
    traces = {
        "a": a_trace([{"epoch": n, "loss": loss, "val_loss": loss + 1} for n, loss in enumerate((3.0, 1.0, 2.0))]),
        "b": a_trace([{"epoch": n, "loss": loss, "accuracy": loss / 9} for n, loss in enumerate((5.0, 4.0))]),
    }
    runs = [a_run("a", rows={"trained": 5000}, lr="0.1", epochs="3"), a_run("b", lr="0.2", epochs="3", momentum="0.9")]
    return compared_runs(runs, traces, ["a", "b"])


def test_lines_over_epochs(two):
    lines, axis = compared_lines(two, "loss", over_time=False)
    assert axis == "epoch"
    assert lines["ys"] == [[3.0, 1.0, 2.0], [4.0, 2.0, 3.0], [5.0, 4.0]]
    assert lines["label"] == ["a: loss", "a: val_loss", "b: loss"]
    assert lines["dash"] == ["solid", "dashed", "solid"]
    assert lines["colour"][0] == lines["colour"][1] != lines["colour"][2]


def test_lines_over_time_begin_with_the_roles(two):
    lines, axis = compared_lines(two, "loss", over_time=True)
    assert (lines["xs"][2], axis) == ([10.0, 20.0], "seconds since the roles began")
    long = Trace(running_since=0.5)
    long.score({"epoch": 0, "loss": 1.0, "role": "worker", "rank": 0, "attempt": 0}, 36_000.5)
    lines, axis = compared_lines(compared_runs([a_run("c")], {"c": long}, ["c"]), "loss", over_time=True)
    assert (lines["xs"], axis) == ([[10.0]], "hours since the roles began")


def test_a_restart_continues_the_line_from_where_it_begins():
    trace = a_trace([{"epoch": n, "loss": 9.0 - n} for n in range(4)])
    a_trace([{"epoch": n, "loss": 1.0} for n in (2, 3)], attempt=1, trace=trace)
    trace.score({"epoch": 0, "loss": 77.0, "role": "worker", "rank": 1, "attempt": 0})
    lines, _ = compared_lines(compared_runs([a_run("a")], {"a": trace}, ["a"]), "loss", over_time=False)
    assert (lines["xs"], lines["ys"]) == ([[0.0, 1.0, 2.0, 3.0]], [[9.0, 8.0, 1.0, 1.0]])


def test_results_say_the_last_and_the_best_score(two):
    rows = dict(results(two, now=200.0))
    assert rows["duration"] == ["1:00 min", "1:00 min"]
    assert rows["loss, last"] == ["2", "4"]
    assert rows["loss, lowest"] == ["1 at epoch 1", "4 at epoch 1"]
    assert rows["val_loss, last"] == ["3", ""]
    assert rows["accuracy, highest"] == ["", "0.5556 at epoch 0"]
    assert rows["rows trained"] == ["5,000", ""]
    assert rows["rows/s, mean"] == ["100", ""]


def test_the_best_of_a_long_curve_is_not_thinned_out_and_no_mean_within_an_epoch():
    values = [2.0] * (3 * MOST_POINTS)
    values[1235] = 0.5
    trace = a_trace([{"epoch": n, "loss": loss} for n, loss in enumerate(values)])
    trace.score({"epoch": 9, "num_steps": 4, "step": 1, "loss": 0.1, "role": "worker", "rank": 0, "attempt": 0})
    trace.score({"epoch": 10_000, "loss": math.nan, "role": "worker", "rank": 0, "attempt": 0})
    rows = dict(results(compared_runs([a_run("a")], {"a": trace}, ["a"]), now=200.0))
    assert rows["loss, lowest"] == ["0.5 at epoch 1235"]
    assert rows["loss, last"] == ["nan"]


def test_a_score_of_which_nobody_knows_what_is_better_has_both_ends():
    trace = a_trace([{"epoch": n, "speed": speed} for n, speed in enumerate((3.0, 1.0))])
    rows = dict(results(compared_runs([a_run("a")], {"a": trace}, ["a"]), now=200.0))
    assert rows["speed, lowest and highest"] == ["1 at epoch 1, 3 at epoch 0"]


def test_memory_is_that_of_the_fullest_host():
    trace = a_trace([])
    for rank, memory in enumerate((1, 2, 3, 4)):
        for told in (memory, 0):
            fields = {"steps": 1, "rows": 10, "memory_bytes": told << 20, "cpu_s": 1.0}
            trace.usage.tell(("worker", rank, 0), fields, 120.0)
    rows = dict(results(compared_runs([a_run("a")], {"a": trace}, ["a"]), now=200.0))
    assert rows["memory per host, most"] == ["7.00 MiB"]
    assert rows["rows trained"] == ["40"], "of a run whose ledger did not come"


def test_settings_that_differ(two):
    assert differing_settings(two) == [("lr", ["0.1", "0.2"]), ("momentum", ["", "0.9"])]


def test_the_table_shows_names_as_they_are():
    runs = compared_runs([a_run("<b>", lr="<i>"), a_run("c", lr="2")], {}, ["<b>", "c"])
    html = table_html(runs, now=200.0)
    assert "&lt;b&gt;" in html
    assert "&lt;i&gt;" in html
    assert "<b>" not in html
    assert "<i>" not in html
    same = table_html(compared_runs([a_run("c"), a_run("d")], {}, ["c", "d"]), now=200.0)
    assert "The runs have the same settings." in same


def test_runs_that_are_gone_are_left_out_and_more_than_there_are_colours():
    runs = [a_run(str(number)) for number in range(MOST_COMPARED + 1)]
    assert [each.run.id for each in compared_runs(runs, {}, ["2", "gone", "1"])] == ["2", "1"]
    assert len(compared_runs(runs, {}, [run.id for run in runs])) == MOST_COMPARED


def test_scores_that_more_runs_have_come_first(two):
    assert names_of_scores(two) == ["loss", "accuracy"]
