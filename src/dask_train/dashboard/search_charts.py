"""Searches in bokeh: a table of them, and of one its trials as parallel coordinates and the best value so far."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .searches import (
    LINE_COLUMNS,
    POINT_COLUMNS,
    SEARCH_COLUMNS,
    Search,
    axes_of,
    best_so_far,
    parallel_lines,
    searches_table,
    values_of,
)
from .widgets import ScrolledTable, heading, set_data, set_value, side_by_side

HEIGHT = 300


class SearchCharts:
    """All searches, and the trials of the one of the run that is shown, else of the newest.

    Attributes
    ----------
    root
        What is placed on the page; only seen where there is a search.
    """

    def __init__(self) -> None:
        from bokeh.layouts import column

        self._table = ScrolledTable(SEARCH_COLUMNS)
        self._parallel, self._lines = _parallel()
        self._best, self._points = _best()
        self._both = side_by_side(self._parallel, self._best, narrowest=340)
        self.root = column(
            heading("Searches"), self._table.root, self._both, sizing_mode="stretch_width", visible=False
        )

    def update(self, searches: Mapping[str, Search], traces: Mapping[str, Any], run: str) -> None:
        """Show what is new."""
        set_value(self.root, "visible", bool(searches))
        if not searches:
            return
        self._table.show(searches_table(searches, traces))
        own = (each for each in searches.values() if any(trial.run == run for trial in each.trials.values()))
        search = next(own, list(searches.values())[-1])
        values = values_of(search, traces)
        axes = axes_of(search, values)
        set_value(self._both, "visible", bool(values))
        set_value(self._parallel.title, "text", f"{search.name}: {len(values)} of {len(search.trials)} trials")
        set_value(self._parallel.xaxis[0].ticker, "ticks", list(range(len(axes))))
        set_value(
            self._parallel.xaxis[0], "major_label_overrides", {place: axis.words() for place, axis in enumerate(axes)}
        )
        set_data(self._lines, parallel_lines(search, values, axes))
        set_value(self._best.title, "text", f"{search.metric} by trial, and the best so far")
        set_data(self._points, best_so_far(search, values))


def _parallel() -> tuple[Any, Any]:
    from bokeh.models import ColumnDataSource, FixedTicker, HoverTool
    from bokeh.plotting import figure

    source = ColumnDataSource({name: [] for name in LINE_COLUMNS})
    chart = figure(
        title="", height=HEIGHT, tools="", toolbar_location=None, min_border_left=70, sizing_mode="stretch_width"
    )
    lines = chart.multi_line("xs", "ys", source=source, line_color="colour", line_width="width", line_alpha="alpha")
    chart.add_tools(HoverTool(renderers=[lines], tooltips=[("", "@label")], line_policy="interp"))
    chart.xaxis.ticker = FixedTicker(ticks=[])
    chart.xaxis.major_label_orientation = 0.25
    chart.yaxis.visible = False
    chart.ygrid.visible = False
    return chart, source


def _best() -> tuple[Any, Any]:
    from bokeh.models import ColumnDataSource, HoverTool
    from bokeh.plotting import figure

    source = ColumnDataSource({name: [] for name in POINT_COLUMNS})
    chart = figure(title="", height=HEIGHT, tools="pan,box_zoom,reset", sizing_mode="stretch_width")
    points = chart.scatter("trial", "value", source=source, color="#0072b2", alpha=0.5, size=7)
    chart.step("trial", "best", source=source, mode="after", line_color="#d55e00", line_width=2)
    chart.add_tools(HoverTool(renderers=[points], tooltips=[("", "@label")]))
    chart.xaxis.axis_label = "trial"
    return chart, source
