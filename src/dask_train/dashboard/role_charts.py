"""Two charts of a run's roles side by side, in bokeh: where the time of each goes, and its course."""

from __future__ import annotations

from html import escape
from typing import Any

from .bars import (
    ACTIVITY_COLOURS,
    BAR_COLUMNS,
    KIND_COLOURS,
    MARK_COLOURS,
    MARK_COLUMNS,
    MOST_ROWS,
    legend,
    rows_of,
    span_bars,
    span_marks,
    time_bars,
)
from .tables import running_roles
from .times import ACTIVITIES, straggler
from .traces import Trace
from .widgets import heading, set_data, set_value, side_by_side

ROW_HEIGHT = 24


class RoleCharts:
    """Where the time of roles goes, who holds the others up, and their course.

    Attributes
    ----------
    root
        What is placed on the page.
    """

    def __init__(self) -> None:
        from bokeh.layouts import column
        from bokeh.models import Div

        self._times, self._course = Bars("% of its time"), Bars("seconds since the run was asked for")
        self._marks = self._course.mark()
        self._straggler, self._note = Div(text="", visible=False), Div(text="", visible=False)
        halves = [
            column(heading(title), Div(text=legend(colours, words)), bars.root, sizing_mode="stretch_width")
            for title, colours, words, bars in (
                ("Where the time goes", ACTIVITY_COLOURS, ACTIVITIES, self._times),
                ("Course of the roles", {**KIND_COLOURS, **MARK_COLOURS}, None, self._course),
            )
        ]
        both = side_by_side(*halves, narrowest=340)
        self.root = column(both, self._straggler, self._note, sizing_mode="stretch_width")

    def update(self, run: Any | None, trace: Trace, now: float) -> None:
        """Show what is new of this run."""
        set_value(self.root, "visible", run is not None)
        if run is None:
            return
        running = running_roles(run)
        self._times.show(rows_of(trace.times), time_bars(trace.times, running, now))
        self._course.show(rows_of(trace.spans), span_bars(trace.spans, run.started, run.ended or now))
        set_data(self._marks, span_marks(trace.spans, run.started))
        who = "" if run.ended else straggler(trace.times, running, now)
        set_value(self._straggler, "text", f"<b>{escape(who)}</b>" if who else "")
        set_value(self._straggler, "visible", bool(who))
        note = f"The first {MOST_ROWS} of {len(trace.spans)} roles are drawn." if len(trace.spans) > MOST_ROWS else ""
        if not trace.times:
            note += " No role has told yet where its time goes."
        set_value(self._note, "text", note.strip())
        set_value(self._note, "visible", bool(note))


class Bars:
    """A chart with a row of bars for each role.

    Attributes
    ----------
    root
        What is placed on the page.
    """

    def __init__(self, along: str) -> None:
        from bokeh.models import ColumnDataSource, HoverTool
        from bokeh.plotting import figure

        self._source = ColumnDataSource({name: [] for name in BAR_COLUMNS})
        self.root = figure(
            y_range=[],
            height=_height(1),
            tools="xpan,xwheel_zoom,reset",
            sizing_mode="stretch_width",
            toolbar_location=None,
        )
        self.root.x_range.start, self.root.x_range.range_padding = 0, 0
        self.root.xaxis.axis_label = along
        self.root.ygrid.visible = False
        bars = self.root.hbar(
            y="role",
            left="left",
            right="right",
            height=0.7,
            fill_color="colour",
            line_color=None,
            source=self._source,
        )
        self.root.add_tools(HoverTool(renderers=[bars], tooltips=[("", "@role: @label")]))

    def mark(self) -> Any:
        """Draw marks next to the bars; return their data."""
        from bokeh.models import ColumnDataSource, HoverTool

        source = ColumnDataSource({name: [] for name in MARK_COLUMNS})
        marks = self.root.scatter(
            x="x", y="role", color="colour", size=11, marker="diamond", line_color="white", source=source
        )
        self.root.add_tools(HoverTool(renderers=[marks], tooltips=[("", "@role: @label")]))
        return source

    def show(self, rows: list[str], data: dict[str, list[Any]]) -> None:
        """Show these bars."""
        set_value(self.root.y_range, "factors", rows)
        set_value(self.root, "height", _height(len(rows)))
        set_data(self._source, data)


def _height(rows: int) -> int:
    return 60 + ROW_HEIGHT * max(rows, 1)
