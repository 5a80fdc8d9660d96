"""Spans of time as bars of a chart."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_train.report.record import RoleTimeline, Span
from dask_train.report.timeline import MAX_TICKS, TimeAxis, phase_rows, role_rows, span_colours


def span(name, start_s, end_s):
    return Span(name=name, start_s=start_s, end_s=end_s)


def role(rank, *spans):
    return RoleTimeline(role="worker", rank=rank, address="", spans=spans)


def test_bars_are_in_percent_of_what_is_shown():
    axis = TimeAxis(-5.0, 15.0)
    bar = axis.bar(span("train", 0.0, 5.0), 3)
    assert (bar.left_percent, bar.width_percent, bar.colour) == (25.0, 25.0, 3)
    assert bar.note == "train: 5.0 s, from 0.0 s to 5.0 s"


def test_an_instant_is_shown_on_an_axis_of_a_second():
    axis = TimeAxis(2.0, 2.0)
    assert axis.length_s == 1.0
    assert axis.bar(span("now", 2.0, 2.0), 0).width_percent == 0.0


@pytest.mark.parametrize(
    ("start_s", "end_s", "labels"),
    [
        (0.0, 60.0, ["0 s", "10 s", "20 s", "30 s", "40 s", "50 s", "60 s"]),
        (0.0, 61.0, ["0 s", "20 s", "40 s", "60 s"]),
        (3.0, 11.0, ["4 s", "6 s", "8 s", "10 s"]),
        (0.0, 0.25, ["0 s", "0.05 s", "0.1 s", "0.15 s", "0.2 s", "0.25 s"]),
        (0.0, 4000.0, ["0 s", "1,000 s", "2,000 s", "3,000 s", "4,000 s"]),
    ],
)
def test_ticks_are_round(start_s, end_s, labels):
    assert [tick.label for tick in TimeAxis(start_s, end_s).ticks()] == labels


@given(st.floats(-1e5, 1e5), st.floats(1e-3, 1e6))
def test_ticks_are_few_and_on_the_chart(start_s, length_s):
    ticks = TimeAxis(start_s, start_s + length_s).ticks()
    assert len(ticks) <= MAX_TICKS + 1
    assert all(-0.001 <= tick.left_percent <= 100.001 for tick in ticks)


def test_a_name_has_one_colour_on_all_rows_by_its_first_start():
    roles = [role(0, span("train", 2, 5), span("wait", 1, 2)), role(1, span("load", 0, 1), span("train", 1, 4))]
    assert span_colours(roles) == {"load": 0, "wait": 1, "train": 2}
    first, second = role_rows(roles, TimeAxis(0.0, 5.0))
    assert [(bar.name, bar.colour) for bar in first.bars] == [("wait", 1), ("train", 2)]
    assert [(bar.name, bar.colour) for bar in second.bars] == [("load", 0), ("train", 2)]
    assert (first.label, first.total_s, second.total_s) == ("worker 0", 4, 4)


def test_overlaps_count_each_time():
    (row,) = role_rows([role(0, span("a", 0, 2), span("b", 1, 3))], TimeAxis(0.0, 3.0))
    assert row.total_s == 4


def test_each_phase_has_a_row_by_its_start():
    rows = phase_rows([span("train", 2, 9), span("launch", 0, 2)], TimeAxis(0.0, 10.0))
    assert [(row.label, row.total_s, row.bars[0].left_percent) for row in rows] == [
        ("launch", 2, 0.0),
        ("train", 7, 20.0),
    ]
