"""Curves of scores over seconds and of metrics over rounds: which lines there are, and on which axes."""

from __future__ import annotations

import re

import matplotlib as mpl
import pytest

from dask_train.report import Metric, Score
from dask_train.report.curves import STYLES, accuracy_curve, loss_curve, loss_is_log, metric_curve, metric_is_log


def score(time_s, loss, accuracy=None, rows="training"):
    return Score(time_s=time_s, loss=loss, accuracy=accuracy, step=None, rows_trained=None, rows=rows)


def metric(**lines):
    return Metric(name="auc", unit="round", lines=lines)


@pytest.fixture
def axes(monkeypatch):
    """The axes of what is drawn, in order."""
    seen = []
    monkeypatch.setattr("dask_train.report.curves.svg_of", lambda figure, prefix: seen.append(*figure.axes) or prefix)
    return seen


def test_each_set_of_rows_has_a_line_that_no_other_one_looks_like(axes):
    ends = dict(zip(["a", "valid_0", "training", "b"], [1.0, 2.0, 3.0, 4.0], strict=True))
    metric_curve(metric(**{name: [(1, 0.5), (2, end)] for name, end in ends.items()}), 0)
    lines = axes[0].lines
    assert [line.get_label() for line in lines] == ["training", "a", "b", "valid_0"], "training first, whatever it is"
    assert {line.get_label(): line.get_ydata()[-1] for line in lines} == ends
    assert len({(line.get_color(), line.get_linestyle()) for line in lines}) == len(lines)
    assert len(axes[0].get_legend().get_texts()) == len(lines)


def test_validation_stays_the_plain_other_line(axes):
    metric_curve(metric(validation=[(1, 0.5)], training=[(1, 0.6)]), 0)
    assert [line.get_linestyle() for line in axes[0].lines] == [STYLES[0]] * 2


@pytest.mark.parametrize("values", [[0.0], [-1.0, -2.0], [0.0, 0.0], [-1e300, 1e300], [5.0], [7, 7]])
def test_every_value_lies_within_the_axes(axes, values):
    metric_curve(metric(training=list(enumerate(values, 1))), 0)
    loss_curve([score(float(at), value) for at, value in enumerate(values)], None, None)
    for each in axes:
        (left, right), (low, high) = each.get_xlim(), each.get_ylim()
        assert left < right
        assert all(low <= value <= high for value in values)
        assert all(left <= place <= right for place in each.lines[0].get_xdata())


def test_an_axis_is_logarithmic_over_a_decade_of_positive_values_alone():
    assert metric_is_log(metric(training=[(1, 1.0)], valid=[(1, 0.1)]))
    assert not metric_is_log(metric(training=[(1, 1.0), (2, 0.11)]))
    assert not metric_is_log(metric(training=[(1, 1.0), (2, -0.01)]))
    assert loss_is_log([score(1.0, 1.0)], 0.01), "a target that has not been reached is to be seen, too"


def test_the_target_is_within_the_axes_and_marked_where_it_was_reached(axes):
    scores = [score(1.0, 0.9), score(2.0, 0.45)]
    loss_curve(scores, 0.5, scores[1])
    low, high = axes[0].get_ylim()
    assert low <= 0.5 <= high
    assert [text.get_text() for text in axes[0].texts] == ["target 0.5", "2.0 s"]


def test_scores_without_an_accuracy_are_left_out_of_its_curve_and_zero_is_not(axes):
    accuracy_curve([score(1.0, 0.9, 0.0), score(2.0, 0.8), score(3.0, 0.7, 1.0)])
    (line,) = axes[0].lines
    assert (list(line.get_xdata()), list(line.get_ydata())) == ([1.0, 3.0], [0.0, 100.0])
    low, high = axes[0].get_ylim()
    assert low <= 0.0 < 100.0 <= high


def test_names_are_drawn_as_they_are(monkeypatch):
    monkeypatch.setitem(mpl.rcParams, "svg.fonttype", "none")  # letters stay letters
    svg = metric_curve(metric(**{"$a_b$": [(1, 0.5)], "<b>": [(1, 0.6)]}), 3)
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", svg)
    assert {"$a_b$", "&lt;b&gt;"} <= set(texts)
    assert "<b>" not in svg
