"""Roles as rows of bars."""

from __future__ import annotations

from dask_train.dashboard.bars import (
    ACTIVITY_COLOURS,
    KIND_COLOURS,
    MARK_COLOURS,
    MOST_ROWS,
    legend,
    rows_of,
    span_bars,
    span_marks,
    time_bars,
)
from dask_train.dashboard.spans import KINDS, Spans
from dask_train.dashboard.times import ACTIVITIES, RoleTime


def test_all_that_there_is_has_a_colour():
    assert list(ACTIVITY_COLOURS) == list(ACTIVITIES)
    assert set(KIND_COLOURS) == set(KINDS.values())
    assert legend(ACTIVITY_COLOURS, ACTIVITIES).count("&#9632;") == len(ACTIVITIES)


def test_the_parts_of_a_roles_time_lie_side_by_side():
    role = RoleTime()
    role.tell(0, {"computing": 3.0, "sums": 0.0, "others": 1.0}, "others", 10.0)
    bars = time_bars({("worker", 1): role}, {("worker", 1)}, 14.0)
    assert list(zip(bars["left"], bars["right"], strict=True)) == [(0.0, 37.5), (37.5, 100.0)]
    assert bars["label"] == ["computing: 3 s, 38%", "waiting for others: 5 s, 62%"]
    assert bars["role"] == ["worker 1", "worker 1"]
    ended = time_bars({("worker", 1): role}, set(), 14.0)
    assert ended["label"] == ["computing: 3 s, 75%", "waiting for others: 1 s, 25%"]


def test_the_course_counts_from_the_beginning_of_the_run():
    spans = Spans()
    for now, phase, attempt in ((101.0, "starting", 0), (103.0, "running", 0), (110.0, "starting", 1)):
        roles = [["worker", 0, phase, attempt, "tcp://h:1", 7, "", 0]]
        spans.summary({"roles": roles, "losses": ["worker 0 was killed."]}, now, over=False)
    bars = span_bars(spans, 100.0, 112.0)
    assert list(zip(bars["left"], bars["right"], strict=True)) == [(1.0, 3.0), (3.0, 10.0), (10.0, 12.0)]
    assert bars["label"] == ["launching: 2 s", "training: 7 s", "launching: 2 s, attempt 1"]
    marks = span_marks(spans, 100.0)
    assert (marks["x"], marks["label"]) == ([10.0], ["lost: worker 0 was killed."])
    assert marks["colour"] == [MARK_COLOURS["lost"]]


def test_rows_go_down_in_order_up_to_a_number():
    keys = {("worker", rank): None for rank in range(MOST_ROWS + 5)}
    assert rows_of(keys)[-2:] == ["worker 1", "worker 0"]
    assert len(rows_of(keys)) == MOST_ROWS
