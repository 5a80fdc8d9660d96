"""Where the time of roles goes, and who holds the others up."""

from __future__ import annotations

import pytest

from dask_train.dashboard.times import ACTIVITIES, WINDOW_S, RoleTime, Times, straggler
from dask_train.process.messages import Progress, to_plain
from dask_train.role import time_spent
from dask_train.run.messages import RoleProcess


def tell(times, rank, now, attempt=0, busy_with="computing", **spent):
    message = Progress(steps=1, doing="", moved=True, awaits_client=False, spent=spent, busy_with=busy_with)
    _, fields, of = to_plain(message, RoleProcess("worker", rank, attempt))
    return dict(times.tell(of, fields, now))


def test_activities_are_those_that_roles_name():
    named = {time_spent.COMPUTING, time_spent.DATA, time_spent.CHECKPOINTS, time_spent.CLIENT}
    assert set(ACTIVITIES) == named | {time_spent.OTHERS, time_spent.SUMS}


def test_attempts_add_up_and_no_number_goes_down():
    times = Times()
    assert tell(times, 0, 1.0, computing=2.0, data=1.0) == {
        ("worker", 0, "computing"): 2.0,
        ("worker", 0, "data"): 1.0,
    }
    assert tell(times, 0, 2.0, computing=1.9, data=1.5) == {("worker", 0, "data"): 0.5}
    assert tell(times, 0, 3.0, attempt=1, computing=0.5) == {("worker", 0, "computing"): 0.5}
    assert times["worker", 0].seconds() == {"computing": 2.5, "data": 1.5}


def test_what_an_attempt_that_was_replaced_tells_late_does_not_count():
    times = Times()
    tell(times, 0, 1.0, computing=2.0)
    tell(times, 0, 2.0, attempt=1, computing=0.5)
    assert tell(times, 0, 2.1, attempt=0, computing=2.1) == {}
    assert tell(times, 0, 3.0, attempt=1, computing=0.7) == {("worker", 0, "computing"): pytest.approx(0.2)}
    assert times["worker", 0].seconds() == {"computing": pytest.approx(2.7)}


def test_a_role_that_tells_no_times_has_none():
    times = Times()
    assert tell(times, 0, 1.0) == {}
    assert times == {}


def test_what_goes_on_counts_while_the_role_is_there():
    role = RoleTime()
    role.tell(0, {"computing": 5.0}, "others", 10.0)
    assert role.up_to(14.0) == {"computing": 5.0, "others": 4.0}
    assert role.up_to(None) == {"computing": 5.0}


@pytest.fixture
def unlike():
    """Two workers: the first waits for the second, which waits for data, for 100 s."""
    times = Times()
    for second in range(101):
        tell(times, 0, float(second), computing=0.2 * second, others=0.8 * second)
        tell(times, 1, float(second), computing=0.3 * second, data=0.65 * second, sums=0.05 * second)
    return times


def test_the_slowest_is_named_with_what_it_does(unlike):
    text = straggler(unlike, {("worker", 0), ("worker", 1)}, 100.0)
    assert text == (
        "worker 1 holds the others up: its time of the last 30 s is 65% waiting for data and 30% computing; "
        "worker 0 waits for others 80% of the time."
    )
    assert straggler(unlike, {("worker", 1)}, 100.0) == "", "the other one is over"


def test_what_lies_long_ago_does_not_count(unlike):
    for second in range(101, 101 + int(WINDOW_S) + 2):
        for rank, role in enumerate((unlike["worker", 0], unlike["worker", 1])):
            told = {**role.spent, "computing": role.spent["computing"] + 1.0}
            tell(unlike, rank, float(second), **told)
    assert straggler(unlike, set(unlike), 101.0 + WINDOW_S + 1) == ""


def test_who_has_told_for_a_moment_only_is_not_judged():
    times = Times()
    for now in (0.0, 1.0):
        tell(times, 0, now, computing=now)
        tell(times, 1, now, others=now or 0.1)
    assert straggler(times, set(times), 1.0) == ""
