"""The page's colours in a dark system, and what its charts ask of bokeh's script."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("bokeh")

import bokeh
from bokeh.document import Document
from bokeh.models import Button, HoverTool
from bokeh.plotting import figure

from dask_train.dashboard.theme import set_theme


def themed(root):
    doc = Document()
    doc.add_root(root)
    set_theme(doc)
    return doc


def test_parts_of_now_and_later_have_dark_colours_and_charts_no_background(shown):
    doc = themed(shown.page.root)
    buttons = doc.roots[0].select({"type": Button})
    chart = figure()
    doc.add_root(chart)
    for part in (*buttons, chart):
        (css,) = part.stylesheets
        assert "prefers-color-scheme: dark" in css
    assert any("html {" in getattr(each, "css", "") for each in doc.roots[0].stylesheets)
    assert chart.background_fill_color is None


def test_with_an_older_bokeh_all_stays_light(shown, monkeypatch):
    monkeypatch.setattr(bokeh, "__version__", "3.8.1")
    doc = themed(shown.page.root)
    assert all(not part.stylesheets for part in doc.roots[0].select({"type": Button}))


def test_boxes_beside_the_pointer_ask_for_values_that_bokeh_has(shown):
    shown.run()
    shown.tell()
    script = (Path(bokeh.__file__).parent / "server/static/js/bokeh.js").read_text()
    known = script[script.index("const vars = {") :]
    asked = {value for tool in shown.all(HoverTool) for _, value in tool.tooltips if value.startswith("$")}
    assert asked == {"$snap_x", "$snap_y"}
    for name in asked:
        assert f" {name[1:]}," in known
