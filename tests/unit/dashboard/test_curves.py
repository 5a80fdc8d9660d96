"""The charts of one run, in bokeh."""

from __future__ import annotations

import pytest

pytest.importorskip("bokeh")

from bokeh.models import ColumnDataSource, Div, GlyphRenderer, Scatter

from dask_train.dashboard.curves import MOST_CHARTS, CurvePanel
from dask_train.dashboard.traces import Trace

PLACE = {"role": "worker", "rank": 0, "attempt": 0}


@pytest.fixture
def curves():
    return CurvePanel()


def drawn(curves):
    return [source.data["ys"] for source in curves.root.select({"type": ColumnDataSource}) if "ys" in source.data]


def test_curves_move_and_another_runs_take_their_place(curves):
    trace = Trace()
    for step, loss in enumerate((2.0, 1.0)):
        trace.score({"step": step, "loss": loss, **PLACE})
        curves.update("r", trace)
        assert drawn(curves) == [[[2.0, 1.0][: step + 1]]]
    curves.update("another", Trace())
    assert drawn(curves) == []
    assert curves.root.select_one({"type": Div}).text == "This run has reported no numbers."


def test_a_curve_of_one_point_is_a_dot(curves):
    trace = Trace()
    trace.score({"epoch": 0, "score": 2.0, "trial": 3, **PLACE})
    curves.update("r", trace)
    (dots,) = [drawn for drawn in curves.root.select({"type": GlyphRenderer}) if isinstance(drawn.glyph, Scatter)]
    assert [dots.data_source.data[dots.glyph.x], dots.data_source.data[dots.glyph.y]] == [[0.0], [2.0]]


def test_of_very_many_scores_the_first_are_drawn(curves):
    trace = Trace()
    trace.score({f"score {number}": 1.0 for number in range(MOST_CHARTS + 1)} | PLACE)
    curves.update("r", trace)
    assert len(drawn(curves)) == MOST_CHARTS
    assert curves.root.select_one({"type": Div}).text == f"The first {MOST_CHARTS} of {MOST_CHARTS + 1} scores."
