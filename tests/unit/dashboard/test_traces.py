"""Curves, rates and counts from what a run tells."""

from __future__ import annotations

import math

import pytest

from dask_train.dashboard.traces import MOST_CURVES, MOST_POINTS, RATE_S, Curve, CurveKey, Trace, scores_in
from dask_train.process.messages import Notice, Reported, to_plain
from dask_train.run.messages import RoleProcess


def test_a_curve_is_thinned_evenly_and_ends_with_the_last_value():
    curve = Curve()
    for number in range(5 * MOST_POINTS + 3):
        curve.add(float(number), 2.0 * number)
        assert curve.x[-1] == number
        assert len(curve.x) <= MOST_POINTS
    assert curve.x[0] == 0.0
    assert {after - before for before, after in zip(curve.x[:-2], curve.x[1:-1], strict=True)} == {8.0}
    assert curve.y == [2 * x for x in curve.x]


def test_what_is_no_number_is_a_gap():
    curve = Curve()
    for number, value in enumerate([1.0, math.inf, math.nan, 2.0]):
        curve.add(number, value)
    assert [math.isnan(value) for value in curve.y] == [False, True, True, False]


def test_scores_are_those_that_a_role_reports():
    of = RoleProcess("worker", 1, 0)
    events = [to_plain(Notice(text="hm"), of), to_plain(Reported(scores=[{"loss": 1.0}, {"loss": 2.0}]), of)]
    assert scores_in(events) == [{"loss": 1.0}, {"loss": 2.0}]


def told(**scores):
    return {"role": "worker", "rank": 0, "attempt": 0, "time": 5.0, **scores}


def test_each_attempt_and_trial_has_its_curve_along_what_it_counts():
    trace = Trace()
    trace.score(told(loss=1.0, epoch=3, note="text", is_best=True))
    trace.score(told(loss=0.5, epoch=4))
    trace.score(told(loss=2.0, epoch=3, attempt=1))
    trace.score(told(error=0.1, trial=7))
    trace.score(told(error=0.2, trial=7))
    keys = {key: (curve.x, curve.y, curve.along) for key, curve in trace.curves.items()}
    assert keys == {
        CurveKey("loss", "worker", 0, 0, None): ([3.0, 4.0], [1.0, 0.5], "epoch"),
        CurveKey("loss", "worker", 0, 1, None): ([3.0], [2.0], "epoch"),
        CurveKey("error", "worker", 0, 0, 7): ([1.0, 2.0], [0.1, 0.2], ""),
    }
    assert trace.num_scores == 5


def test_within_epochs_a_curve_goes_by_their_parts():
    trace = Trace()
    trace.score(told(loss=4.0, epoch=0, step=25, num_steps=100))
    trace.score(told(loss=3.0, epoch=0, num_steps=100, val_loss=5.0))
    trace.score(told(loss=2.0, epoch=1, step=50, num_steps=100))
    trace.score(told(loss=1.0, epoch=1, num_steps=100, val_loss=4.0))
    curves = {key.name: (curve.x, curve.along) for key, curve in trace.curves.items()}
    assert curves == {"loss": ([0.25, 1.0, 1.5, 2.0], "epoch"), "val_loss": ([1.0, 2.0], "epoch")}


def test_of_very_many_curves_the_first_are_kept():
    trace = Trace()
    for number in range(MOST_CURVES + 1):
        assert not trace.left_out
        trace.score(told(loss=1.0, trial=number))
    assert (len(trace.curves), trace.left_out) == (MOST_CURVES, True)


def test_bounds_of_a_trial_are_of_whole_epochs_and_go_on_where_there_are_very_many(monkeypatch):
    monkeypatch.setattr("dask_train.dashboard.traces.MOST_BOUNDS", 1)
    trace = Trace()
    for fields in ({"step": 5, "loss": 0.1}, {"loss": 3.0}, {"loss": 2.0}, {"loss": 4.0, "acc": 1.0}):
        trace.score(told(**{"trial": 0, "epoch": 0, "num_steps": 10, **fields}))
    assert trace.trial_bounds == {(0, "loss"): (2.0, 4.0)}


def test_batches_of_all_attempts_count_once(summary_of):
    trace = Trace()
    for batches in (0, 10, 10, 14):
        trace.summary(summary_of("running", (0, 0, batches), (1, 0, 2)), now=1.0)
    trace.summary(summary_of("restarting", (0, 1, 0), (1, 1, 0), num_restarts=1), now=2.0)
    trace.summary(summary_of("running", (0, 1, 5), (1, 1, 0), num_restarts=1), now=3.0)
    assert (trace.num_batches, trace.num_restarts, trace.running_since) == ({"worker": 14 + 2 + 5}, 1, 1.0)


def test_a_rate_is_of_the_last_seconds(summary_of):
    trace = Trace()
    assert trace.rate(0.0) == 0.0
    for second in range(31):
        steps = second if second <= 10 else 10 + 5 * (second - 10)
        trace.summary(summary_of("running", (0, 0, steps)), now=float(second))
    assert trace.rate(30.0) == pytest.approx(5.0)
    assert trace.rate(30.0 + 2 * RATE_S) == 0.0, "nothing was heard since"
