"""Figures for pages: nothing of the user's settings, ids that do not clash, and the page's own colours."""

from __future__ import annotations

import re

import matplotlib as mpl
import pytest

from dask_train.report.drawing import CURVE, PAGE_COLOURS, new_figure, png_of, svg_of


def drawn():
    made = new_figure(2.0, 1.5)
    axes = made.add_subplot()
    axes.plot([0, 1], [1, 2], color=CURVE)
    axes.set_title("cost in $ and $")
    return made


@pytest.fixture
def figure():
    return drawn()


def test_two_drawings_share_no_id_and_each_finds_its_own(figure):
    one, other = svg_of(figure, "loss"), svg_of(figure, "metric-1")
    ids = [set(re.findall(r'\bid="([^"]*)"', svg)) for svg in (one, other)]
    assert ids[0]
    assert not ids[0] & ids[1]
    for svg, known in zip((one, other), ids, strict=True):
        assert set(re.findall(r'href="#([^"]*)"|url\(#([^)]*)\)', svg))
        assert {a or b for a, b in re.findall(r'href="#([^"]*)"|url\(#([^)]*)\)', svg)} <= known


def test_a_drawing_names_nothing_outside_and_takes_the_pages_colours(figure):
    svg = svg_of(figure, "loss")
    assert svg.startswith("<svg viewBox=")
    assert "var(--curve)" in svg
    assert not any(colour in svg for colour in PAGE_COLOURS)
    assert not re.findall(r"<style|<\?xml|<!DOCTYPE|https?://(?!www\.w3\.org/)", svg)


def test_settings_of_a_notebook_change_no_pixel(monkeypatch):
    plain = png_of(drawn(), "white")
    for name, value in {"savefig.dpi": 30, "savefig.bbox": "tight", "font.family": "serif"}.items():
        monkeypatch.setitem(mpl.rcParams, name, value)
    assert png_of(drawn(), "white") == plain
    assert plain[:8] == b"\x89PNG\r\n\x1a\n"
