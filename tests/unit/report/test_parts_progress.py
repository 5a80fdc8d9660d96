"""Partitions that are done, their rows, how fast, and the time that is left."""

from __future__ import annotations

import io
from typing import Any

from dask_train.report.parts_progress import PartsDisplay


class Clock:
    now_s = 10.0

    def __call__(self) -> float:
        return self.now_s


def shown_after(seconds: float, done: list[int], **settings: Any) -> PartsDisplay:
    clock = Clock()
    display = PartsDisplay(what="evaluating", file=io.StringIO(), clock=clock, **settings)
    clock.now_s += seconds
    display.done(done, 4)
    return display


def test_rows_are_told_where_they_are_known() -> None:
    display = shown_after(2.0, [0, 2], rows=[100, 50, 300, 350])
    assert display.lines(120) == ["evaluating · 2 of 4 partitions · 400 of 800 rows · 200 rows/s · 2.0 s left · 2.0 s"]
    assert display.lines(40) == ["evaluating · 2/4 · 2 s left · 2 s"]
    assert "width:50.0%" in display.html()
    assert "400 of 800 rows" in display.html()


def test_parts_that_were_there_before_make_it_no_faster() -> None:
    display = shown_after(2.0, [0], num_there=6)
    assert display.lines(120) == ["evaluating · 7 of 10 partitions · 0.5 partitions/s · 6.0 s left · 2.0 s"]
    assert shown_after(2.0, [], num_there=6).lines(120) == ["evaluating · 6 of 10 partitions · 2.0 s"]
