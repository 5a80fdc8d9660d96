"""Runs side by side, in bokeh: one chart with a line for each, and a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from .compared import (
    LINE_COLUMNS,
    MOST_COMPARED,
    Compared,
    compared_lines,
    compared_runs,
    names_of_scores,
    table_html,
)
from .traces import Trace
from .widgets import heading, set_data, set_value

_ALONG = ("over epochs", "over time")


class Comparison:
    """The choice of runs to compare, and what is seen of them.

    Attributes
    ----------
    root
        What is placed on the page; only the choice is seen until two runs are chosen.
    """

    def __init__(self) -> None:
        from bokeh.layouts import column
        from bokeh.models import Div, MultiChoice, RadioButtonGroup, Select

        self._choice = MultiChoice(
            title=f"Choose two runs or more, {MOST_COMPARED} at most",
            options=[],
            value=[],
            max_items=MOST_COMPARED,
            sizing_mode="stretch_width",
            max_width=900,
        )
        self._score = Select(title="Score", options=[], width=200)
        self._along = RadioButtonGroup(labels=list(_ALONG), active=0, margin=(23, 5, 5, 5))
        self._figure, self._source = _chart()
        self._table = Div(text="", sizing_mode="stretch_width", styles={"overflow-x": "auto"})
        wrapping = column(self._score, self._along, sizing_mode="stretch_width", styles={"flex-flow": "row wrap"})
        self._shown = column(wrapping, self._figure, self._table, sizing_mode="stretch_width", visible=False)
        self.root = column(
            heading("Compare runs"), self._choice, self._shown, sizing_mode="stretch_width", visible=False
        )

    def update(self, runs: Sequence[Any], traces: Mapping[str, Trace], now: float) -> None:
        """Show what is new."""
        names = [run.id for run in runs]
        set_value(self.root, "visible", len(names) > 1)
        set_value(self._choice, "value", [name for name in self._choice.value if name in names])
        # bokeh draws the labels of this choice as HTML, and folders of logs may have any name.
        set_value(self._choice, "options", [(name, escape(name)) for name in names])
        chosen = compared_runs(runs, traces, self._choice.value)
        if len(chosen) > 1:
            self._compare(chosen, now)
        set_value(self._shown, "visible", len(chosen) > 1)

    def _compare(self, runs: Sequence[Compared], now: float) -> None:
        scores = names_of_scores(runs)
        set_value(self._score, "options", scores)
        if self._score.value not in scores:
            self._score.value = scores[0] if scores else ""
        over_time = self._along.active == _ALONG.index("over time")
        lines, axis = compared_lines(runs, self._score.value, over_time=over_time)
        set_data(self._source, lines)
        set_value(self._figure.xaxis[0], "axis_label", axis)
        is_validated = "dashed" in lines["dash"]
        words = f"{self._score.value}, dashed: val_{self._score.value}" if is_validated else self._score.value
        set_value(self._figure.yaxis[0], "axis_label", words)
        set_value(self._figure, "visible", bool(scores))
        set_value(self._table, "text", table_html(runs, now))


def _chart() -> tuple[Any, Any]:
    from bokeh.models import ColumnDataSource, HoverTool, Legend
    from bokeh.plotting import figure

    source = ColumnDataSource({key: [] for key in LINE_COLUMNS})
    chart = figure(height=380, tools="pan,xwheel_zoom,box_zoom,reset", sizing_mode="stretch_width")
    chart.add_layout(Legend(ncols=2, location="top_left", padding=4, background_fill_alpha=0.0), "below")
    lines = chart.multi_line(
        "xs", "ys", source=source, line_color="colour", line_dash="dash", line_width=2, legend_field="run"
    )
    chart.scatter("x", "y", source=source, color="colour", size=5)  # of one point there is no line
    chart.add_tools(HoverTool(renderers=[lines], tooltips=[("", "@label"), ("value", "$snap_y"), ("at", "$snap_x")]))
    return chart, source
