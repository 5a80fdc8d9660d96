"""The curves of one run, in bokeh: a chart for each score."""

from __future__ import annotations

from typing import Any

from .tables import CHART_COLUMNS, along, chart, chart_names
from .traces import Trace
from .widgets import set_data, set_value, side_by_side

# Of a run with more charts the first ones are drawn.
MOST_CHARTS = 12
# In pixels; three are side by side where a page has room.
NARROWEST_CHART = 330


class CurvePanel:
    """The charts of the run that is shown.

    Attributes
    ----------
    root
        What is placed on the page.
    """

    def __init__(self) -> None:
        from bokeh.layouts import column
        from bokeh.models import Div

        self._shown: tuple[str, tuple[str, ...]] = ("", ())
        self._charts: list[tuple[str, Any, Any]] = []  # name, figure, source
        self._note = Div(text="", visible=False)
        self._grid = column(sizing_mode="stretch_width")
        self.root = column(self._note, self._grid, sizing_mode="stretch_width")

    def update(self, run: str, trace: Trace) -> None:
        """Show what is new of this run."""
        names = chart_names(trace)
        if is_new := self._shown != (run, tuple(names)):
            self._shown = (run, tuple(names))
            self._charts = [(name, *_chart(name)) for name in names[:MOST_CHARTS]]
        for name, figure, source in self._charts:
            set_data(source, chart(trace, name))
            set_value(figure.xaxis[0], "axis_label", along(trace, name))
        if is_new:  # with their data, or bokeh could set no ranges
            self._grid.children = [
                side_by_side(*(figure for _, figure, _ in self._charts[first : first + 3]), narrowest=NARROWEST_CHART)
                for first in range(0, len(self._charts), 3)
            ]
        note = _note(trace, len(names)) if run else ""
        set_value(self._note, "text", note)
        set_value(self._note, "visible", bool(note))


def _note(trace: Trace, num_charts: int) -> str:
    if not num_charts:
        return "This run has reported no numbers."
    left_out = "Some curves are not kept: there were too many. " if trace.left_out else ""
    return left_out + (f"The first {MOST_CHARTS} of {num_charts} scores." if num_charts > MOST_CHARTS else "")


def _chart(name: str) -> tuple[Any, Any]:
    from bokeh.models import ColumnDataSource, HoverTool
    from bokeh.plotting import figure

    source = ColumnDataSource({key: [] for key in CHART_COLUMNS})
    chart_ = figure(title=name, height=260, tools="pan,xwheel_zoom,box_zoom,reset", sizing_mode="stretch_width")
    lines = chart_.multi_line(
        "xs", "ys", source=source, line_color="colour", line_alpha="alpha", line_dash="dash", line_width=2
    )
    chart_.scatter("x", "y", source=source, color="colour", alpha="alpha", size=5)  # of one point there is no line
    chart_.add_tools(HoverTool(renderers=[lines], tooltips=[("", "@label"), ("value", "$snap_y"), ("at", "$snap_x")]))
    return chart_, source
