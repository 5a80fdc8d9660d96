"""Where the time of roles goes, and who holds the others up, as the page draws it."""

from __future__ import annotations

import pytest

from dask_train.process.messages import Progress

pytest.importorskip("bokeh")

from bokeh.models import ColumnDataSource, Div, HoverTool


def test_a_role_tells_where_its_time_goes(shown):
    shown.run()
    told = {"steps": 1, "doing": "w", "moved": True, "awaits_client": False, "busy_with": "computing"}
    shown.tell(Progress(**told, spent={"computing": 3.0, "data": 1.0}))
    bars = [source.data for source in shown.all(ColumnDataSource) if "left" in source.data]
    labels = sorted([label.partition(":")[0] for label in data["label"]] for data in bars)
    assert labels == [["computing", "waiting for data"], ["training"]]


def test_hovering_tells_whose_a_bar_is(shown):
    shown.run()
    tooltips = [pair for tool in shown.all(HoverTool) for pair in tool.tooltips]
    assert ("", "@role: @label") in tooltips
    assert not [label for label, _ in tooltips if "@" in label], "bokeh puts no values into labels"


def test_the_straggler_is_named(shown, monkeypatch):
    shown.run()
    monkeypatch.setattr("dask_train.dashboard.role_charts.straggler", lambda *_: "worker <1> holds the others up")
    shown.page.update()
    assert any("<b>worker &lt;1&gt; holds the others up</b>" in div.text for div in shown.all(Div))
