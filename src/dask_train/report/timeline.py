"""Spans of time as bars of a chart: where each begins and how wide it is, in percent of the whole.

Owns the geometry. The page's own HTML and CSS draw it, so that its letters stay readable on a narrow screen.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dask_train.report.formats import seconds_text
from dask_train.report.record import RoleTimeline, Span

NUM_COLOURS = 7  # of the palette in page.css; names beyond it get the same colours with stripes
MAX_TICKS = 6


@dataclass(frozen=True, kw_only=True, slots=True)
class Bar:
    """A span of a timeline, placed.

    Parameters
    ----------
    name
        The span's name.
    left_percent, width_percent
        Where it begins and how wide it is, in percent of the whole chart.
    colour
        The number of its colour; from ``NUM_COLOURS`` on they repeat with stripes.
    note
        What to show on hovering.
    """

    name: str
    left_percent: float
    width_percent: float
    colour: int
    note: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One line of the chart.

    Parameters
    ----------
    label
        What the line is about.
    bars
        By time of start.
    total_s
        Seconds that its spans cover, overlaps counted each time.
    """

    label: str
    bars: tuple[Bar, ...]
    total_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Tick:
    """A mark of the time axis: its place in percent of the chart, and its label."""

    left_percent: float
    label: str


class TimeAxis:
    """The time that a chart shows.

    Parameters
    ----------
    start_s, end_s
        Seconds from the start of the run; where they are equal, one second is shown.
    """

    def __init__(self, start_s: float, end_s: float) -> None:
        assert end_s >= start_s
        self.start_s = start_s
        self.length_s = (end_s - start_s) or 1.0

    def percent(self, time_s: float) -> float:
        """Place a time, in percent of the chart from its left edge."""
        return round(100 * (time_s - self.start_s) / self.length_s, 3)

    def ticks(self) -> tuple[Tick, ...]:
        """Mark round seconds: at most ``MAX_TICKS`` steps of 1, 2 or 5 times a power of ten."""
        raw = self.length_s / MAX_TICKS
        power = 10.0 ** math.floor(math.log10(raw))
        step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= raw)
        first = math.ceil(self.start_s / step)
        last = math.floor((self.start_s + self.length_s) / step)
        times = [number * step for number in range(first, last + 1)]
        return tuple(Tick(left_percent=self.percent(time_s), label=f"{time_s:,g} s") for time_s in times)

    def bar(self, span: Span, colour: int) -> Bar:
        """Place one span."""
        return Bar(
            name=span.name,
            left_percent=self.percent(span.start_s),
            width_percent=round(100 * span.duration_s / self.length_s, 3),
            colour=colour,
            note=f"{span.name}: {seconds_text(span.duration_s)}, from {span.start_s:,.1f} s to {span.end_s:,.1f} s",
        )


def span_colours(roles: Sequence[RoleTimeline]) -> dict[str, int]:
    """Give the names of the roles' spans numbers in order of their first start: one colour a name."""
    spans = sorted((span for role in roles for span in role.spans), key=lambda span: span.start_s)
    return {name: number for number, name in enumerate(dict.fromkeys(span.name for span in spans))}


def role_rows(roles: Sequence[RoleTimeline], axis: TimeAxis) -> tuple[Row, ...]:
    """Place every role's spans, one row a role, in the order of the roles."""
    colours = span_colours(roles)
    return tuple(
        Row(
            label=role.label,
            bars=tuple(axis.bar(span, colours[span.name]) for span in _by_start(role.spans)),
            total_s=sum(span.duration_s for span in role.spans),
        )
        for role in roles
    )


def phase_rows(phases: Sequence[Span], axis: TimeAxis) -> tuple[Row, ...]:
    """Place the phases, one row each, by their start."""
    return tuple(
        Row(label=phase.name, bars=(axis.bar(phase, 0),), total_s=phase.duration_s) for phase in _by_start(phases)
    )


def _by_start(spans: Sequence[Span]) -> list[Span]:
    return sorted(spans, key=lambda span: (span.start_s, span.end_s))
