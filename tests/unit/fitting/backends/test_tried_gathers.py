"""The rows of a whole batch are given to steps on any part of it, and derivatives of all parts to each."""

from __future__ import annotations

import numpy as np

from dask_train.fitting.backends.tried_gathers import TriedGather, TriedGathers

ROWS = np.arange(8.0).reshape(4, 2)


def test_later_passes_are_given_the_rows_of_the_first_by_their_order():
    gathers, places = TriedGathers(), [TriedGather(), TriedGather()]
    assert not gathers.are_used
    for rows in (ROWS, np.concatenate([ROWS, ROWS]) + 1, ROWS[:1]):
        gathers.begin()
        np.testing.assert_array_equal(gathers.gather(places[0], rows), ROWS)
        np.testing.assert_array_equal(gathers.gather(places[1], -rows), -ROWS)
    assert gathers.are_used


def test_derivatives_of_parts_are_summed_with_their_shares():
    gathers, place = TriedGathers(), TriedGather()
    parts = [(slice(0, 1), 0.25), (slice(1, 4), 0.75)]
    gathers.begin()
    gathers.gather(place, ROWS)
    np.testing.assert_array_equal(gathers.spread(place, ROWS), ROWS)
    for notes in (True, False):
        for number, (part, share) in enumerate(parts):
            gathers.begin(part, share, notes=notes)
            gathers.gather(place, ROWS[part])
            found = gathers.spread(place, ROWS * (number + 1.0))
            assert found.shape == ROWS[part].shape
            if not notes:
                np.testing.assert_allclose(found, ROWS[part] * (0.25 * 1 + 0.75 * 2) / share)


def test_the_same_rows_twice_have_no_derivative():
    gathers, place = TriedGathers(), TriedGather()
    gathers.begin()
    gathers.gather(place, ROWS)
    gathers.begin()
    gathers.gather(place, np.concatenate([ROWS, ROWS]))
    np.testing.assert_array_equal(gathers.spread(place, ROWS), np.zeros((8, 2)))
