"""Tables, headings and data sources of the page, in bokeh."""

from __future__ import annotations

from typing import Any

WIDTHS = {
    "run": 150,
    "phase": 190,
    "started": 130,
    "roles": 220,
    "scores": 300,
    "doing": 240,
    "why": 620,
    "address": 200,
    "with": 420,
    "prediction": 320,
    "search": 150,
}
ROW_HEIGHT, MOST_ROWS_SEEN = 25, 8
# A table becomes no narrower than this share of its columns' widths: beyond, it scrolls.
NARROWEST = 0.7


class ScrolledTable:
    """A table that grows with its rows up to a height, and scrolls beyond.

    Attributes
    ----------
    root
        What is placed on the page.
    source
        Its data.
    """

    def __init__(self, names: tuple[str, ...]) -> None:
        from bokeh.layouts import column
        from bokeh.models import ColumnDataSource, CustomJS, DataTable, TableColumn

        self.source = ColumnDataSource({name: [] for name in names})
        columns = [TableColumn(field=name, title=name, width=WIDTHS.get(name, 80)) for name in names]
        self._table = DataTable(
            source=self.source,
            columns=columns,
            height=_height(0),
            min_width=int(NARROWEST * sum(each.width for each in columns)),
            row_height=ROW_HEIGHT,
            index_position=None,
            sortable=False,
            reorderable=False,
            sizing_mode="stretch_width",
        )
        self.root = column(self._table, sizing_mode="stretch_width", styles={"overflow-x": "auto"})
        # bokeh 3.9.2 draws a table again only when its number of rows changes (Dask's own ones, too).
        self.source.js_on_change("data", CustomJS(args={"table": self._table}, code="table.view.change.emit()"))

    def show(self, data: dict[str, list[Any]]) -> int:
        """Show this; how many rows it has."""
        count = len(next(iter(data.values())))
        set_data(self.source, data)
        set_value(self._table, "height", _height(count))
        return count


def _height(rows: int) -> int:
    return ROW_HEIGHT * (1 + min(max(rows, 1), MOST_ROWS_SEEN)) + 8


def side_by_side(*parts: Any, narrowest: int) -> Any:
    """Return a row of parts of equal widths that wraps where they would become narrower than that many pixels."""
    from bokeh.layouts import column

    for part in parts:
        part.styles = {**part.styles, "flex": f"1 1 {narrowest}px"}
    return column(*parts, sizing_mode="stretch_width", styles={"flex-flow": "row wrap", "column-gap": "16px"})


def heading(text: str) -> Any:
    """Return a heading."""
    from bokeh.models import Div

    return Div(text=f"<h3 style='margin: 6px 0 0 0'>{text}</h3>")


def set_data(source: Any, data: dict[str, list[Any]]) -> None:
    """Send what is new, if anything is."""
    if source.data != data:
        source.data = data


def set_value(model: Any, name: str, value: Any) -> None:
    """Set one property, if it has changed."""
    if getattr(model, name) != value:
        setattr(model, name, value)
