"""Two numbers of workers: which can be, and what they make of a number of Dask workers."""

from __future__ import annotations

import pytest

from dask_train.run.bounds import WorkerBounds


def test_the_nearest_number_within_them():
    bounds = WorkerBounds.of([2, 4])
    assert bounds == (2, 4)
    assert [bounds.nearest(count) for count in (0, 2, 3, 9)] == [2, 2, 3, 4]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ((2,), r"workers is \(2,\); pass a whole number, or two"),
        ((2, 3, 4), "or two of them"),
        ((2, "8"), "or two of them"),
        ((2, True), "or two of them"),
        ((2, None), "or two of them"),
        ((1, 8), r"has at least 2\. A single worker .* none can join it\. Pass workers=\(2, 8\)"),
        ((1, 2), r"Pass workers=2 for a number that stays, or .* such as workers=\(2, 4\)"),
        ((0, 0), r"Pass workers=1 for a number that stays"),
        ((8, 2), r"the least comes first\. Pass workers=\(2, 8\)"),
    ],
)
def test_what_are_no_bounds(given, why):
    with pytest.raises(ValueError, match=why):
        WorkerBounds.of(given)
