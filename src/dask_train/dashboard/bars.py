"""Roles as rows of bars: where their time goes, and their course over time. Columns for bokeh; no bokeh here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .spans import Spans
from .tables import columns_of, duration
from .times import ACTIVITIES, RoleTime

BAR_COLUMNS = ("role", "left", "right", "colour", "label")
MARK_COLUMNS = ("role", "x", "colour", "label")
# Of a run with more roles the first ones are drawn.
MOST_ROWS = 32
# Okabe and Ito (2008): distinguishable without red, or green.
ACTIVITY_COLOURS = {
    "computing": "#009e73",
    "data": "#d55e00",
    "others": "#e69f00",
    "sums": "#0072b2",
    "checkpoints": "#cc79a7",
    "client": "#bbbbbb",
}
KIND_COLOURS = {"waiting for room": "#bbbbbb", "launching": "#e69f00", "training": "#009e73", "ending": "#777777"}
MARK_COLOURS = {"lost": "#d55e00", "returned": "#0072b2"}

Key = tuple[str, int]
Columns = dict[str, list[Any]]


def time_bars(times: Mapping[Key, RoleTime], running: set[Key], now: float) -> Columns:
    """Return where the time of each role goes, in percent of it."""
    rows: list[tuple[Any, ...]] = []
    for key in sorted(times)[:MOST_ROWS]:
        seconds = times[key].up_to(now if key in running else None)
        whole, left = sum(seconds.values()), 0.0
        for name, words in ACTIVITIES.items():
            percent = 100 * seconds.get(name, 0.0) / whole if whole else 0.0
            if percent:
                label = f"{words}: {seconds[name]:.3g} s, {percent:.0f}%"
                rows.append((_name(key), round(left, 2), round(left + percent, 2), ACTIVITY_COLOURS[name], label))
            left += percent
    return columns_of(BAR_COLUMNS, rows)


def span_bars(spans: Spans, began: float, now: float) -> Columns:
    """Return the course of each role, in seconds since the run was asked for."""
    rows = [
        (
            _name(key),
            round(span.start - began, 2),
            round((span.end or now) - began, 2),
            KIND_COLOURS[span.kind],
            f"{span.kind}: {duration((span.end or now) - span.start)}{_attempt(span.attempt)}",
        )
        for key in sorted(spans)[:MOST_ROWS]
        for span in spans[key].spans
    ]
    return columns_of(BAR_COLUMNS, rows)


def span_marks(spans: Spans, began: float) -> Columns:
    """Return when roles were lost, and when they returned."""
    rows = [
        (
            _name(key),
            round(mark.time - began, 2),
            MARK_COLOURS[mark.kind],
            f"{mark.kind}{_attempt(mark.attempt)}" + (f": {mark.text}" if mark.text else ""),
        )
        for key in sorted(spans)[:MOST_ROWS]
        for mark in spans[key].marks
    ]
    return columns_of(MARK_COLUMNS, rows)


def rows_of(keys: Mapping[Key, Any]) -> list[str]:
    """Return the names of the rows, the first one at the top as bokeh counts."""
    return [_name(key) for key in sorted(keys)[:MOST_ROWS]][::-1]


def legend(colours: Mapping[str, str], words: Mapping[str, str] | None = None) -> str:
    """Return what the colours mean, as HTML."""
    return " &nbsp; ".join(
        f"<span style='color: {colour}'>&#9632;</span> {(words or {}).get(name, name)}"
        for name, colour in colours.items()
    )


def _name(key: Key) -> str:
    return f"{key[0]} {key[1]}"


def _attempt(number: int) -> str:
    return f", attempt {number}" if number else ""
