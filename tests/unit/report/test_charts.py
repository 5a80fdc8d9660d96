"""Small charts of scores: which points are kept, and how they are drawn."""

from __future__ import annotations

import itertools
import math
import re
import xml.etree.ElementTree as ElementTree

import pytest

from dask_train.report.charts import HEIGHT, MOST_CHARTS, MOST_POINTS, WIDTH, Curves, small_chart


def drawn(svg):
    """The points of each line of a chart."""
    root = ElementTree.fromstring(svg)  # noqa: S314 - it was made here
    return [
        [tuple(map(float, pair.split(","))) for pair in line.get("points").split()] for line in root.findall("polyline")
    ]


def test_lines_are_by_name_of_each_roles_first_rank_and_nothing_is_taken_twice():
    curves, scores = Curves(), []
    assert curves.svgs() == []
    for number in range(3):
        scores.append({"rank": 0, "time": float(number), "loss": 3.0 - number, "val_loss": 4.0 - number})
        scores.append({"rank": 1, "time": float(number), "loss": 100.0})
        curves.take(scores)
    (svg,) = curves.svgs()
    training, validation = drawn(svg)
    assert (len(training), len(validation)) == (3, 3)
    assert 'aria-label="loss: training 1, validation 2"' in svg
    assert "100" not in re.sub(r'(points|width|height|viewBox)="[^"]*"', "", svg)


def test_roles_that_report_one_name_have_lines_of_their_own():
    curves, scores = Curves(), []
    for at in range(2):
        scores.append({"role": "worker", "rank": 0, "time": float(at), "loss": 3.0 - at})
        scores.append({"role": "scorer", "rank": 0, "time": float(at), "loss": 8.0 - at})
        curves.take(scores)
    labels = [ElementTree.fromstring(svg).get("aria-label") for svg in curves.svgs()]  # noqa: S314 - made here
    assert labels == ["loss: 2", "scorer/loss: 7"]


def test_a_lone_line_is_not_called_training_which_its_rows_may_not_be():
    curves = Curves()
    curves.take([{"rank": 0, "time": float(at), "held_out_auc": 0.5 + at} for at in range(2)])
    assert 'aria-label="held_out_auc: 1.5"' in curves.svgs()[0]


def test_a_name_needs_two_points_and_there_are_only_so_many_charts():
    curves = Curves()
    curves.add("alone", "training", (0.0, 1.0))
    for number in range(MOST_CHARTS + 2):
        for at in (0.0, 1.0):
            curves.add(f"name{number}", "training", (at, at))
    svgs = curves.svgs()
    assert len(svgs) == MOST_CHARTS
    assert "alone" not in "".join(svgs)


def test_what_is_no_number_is_no_point():
    curves = Curves()
    for at, value in enumerate([1.0, math.nan, math.inf, 2.0]):
        curves.add("loss", "training", (float(at), value))
    ((first, last),) = drawn(curves.svgs()[0])
    assert (first[0], last[0]) == (0.0, WIDTH)


@pytest.mark.parametrize("count", [MOST_POINTS, MOST_POINTS + 1, 10 * MOST_POINTS])
def test_many_points_are_thinned_evenly(count):
    curves = Curves()
    for number in range(count):
        curves.add("loss", "training", (float(number), 0.0))
    ((*points,),) = drawn(curves.svgs()[0])
    assert MOST_POINTS // 2 <= len(points) <= MOST_POINTS
    kept = [at for at, _ in curves._lines["loss"]["training"]]
    (gap,) = {int(later - earlier) for earlier, later in itertools.pairwise(kept)}
    assert kept[0] == 0
    assert kept[-1] + gap >= count, "also of the last ones"


def test_lines_share_their_axes_which_they_fill():
    svg = small_chart("<loss>", {"training": [(0, 4.0), (10, 0.0)], "validation": [(5, 2.0)], "empty": []})
    assert drawn(svg) == [[(0.0, 20.0), (WIDTH, 20.0 + HEIGHT)], [(WIDTH / 2, 20.0 + HEIGHT / 2)]]
    assert "&lt;loss&gt;" in svg


def test_values_that_are_all_the_same_are_a_line():
    assert drawn(small_chart("loss", {"training": [(1, 5.0), (2, 5.0)]})) == [
        [(0.0, 20.0 + HEIGHT), (WIDTH, 20.0 + HEIGHT)]
    ]
