"""What is shown of a run that goes through all rows once."""

from __future__ import annotations

import io
from typing import Any

from dask_train.report.parts_progress import RowsDisplay


def status(*batches: int) -> dict[str, Any]:
    roles = [{"role": "worker", "rank": rank, "num_batches": count} for rank, count in enumerate(batches)]
    return {"phase": "running", "roles": roles, "num_alive": 2, "num_scores": 0, "training": ("worker",)}


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def after_4_s(rows: int | None, *batches: int) -> RowsDisplay:
    clock = Clock()
    display = RowsDisplay(True, rows=rows, batch_size=100, file=io.StringIO(), clock=clock)
    display.update(status(0, 0))
    clock.now_s = 4.0
    display.update(status(*batches))
    return display


def test_rows_rate_and_time_left() -> None:
    display = after_4_s(1_050, 8, 8)
    assert display.lines(200) == ["running · 2 of 2 roles · 800 of 1,050 rows · 200 rows/s · 1.2 s left · 4.0 s"]
    assert 'style="border-radius:3px;height:6px;background:#56b4e9;width:76.2%"' in display.html()


def test_rows_are_those_that_all_have_seen_and_never_more_than_there_are() -> None:
    assert " 700 of 1,050 rows " in after_4_s(1_050, 7, 9).lines(200)[0]
    (line,) = after_4_s(1_050, 11, 11).lines(200)
    assert " 1,050 of 1,050 rows " in line
    assert "left" not in line


def test_where_rows_are_not_known_neither_is_the_time_left() -> None:
    assert after_4_s(None, 8, 8).lines(200) == ["running · 2 of 2 roles · 800 rows · 200 rows/s · 4.0 s"]
