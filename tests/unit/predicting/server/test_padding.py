"""Rows that pad batches differ from real ones, and variables hold again what they held."""

from __future__ import annotations

import numpy as np
import pytest

from dask_train.predicting.server.padding import Kept, alike, filled_up, other_rows

HUGE = np.finfo("f4").max


class Variable:
    def __init__(self, value):
        self.value, self.assigned = np.asarray(value), 0

    def assign(self, value):
        self.value, self.assigned = value, self.assigned + 1


def test_a_batch_is_filled_up_with_one_row():
    assert filled_up(np.array([[1], [2]]), np.array([[7]]), 4).tolist() == [[1], [2], [7], [7]]


@pytest.mark.parametrize(
    "row",
    [
        np.array([[0, -1, -0.5, 3, HUGE, -HUGE, np.nan, np.inf]], "f4"),
        np.full((1, 2), np.nan),
        np.array([[0, 5, -3]]),
        np.array([0]),
        np.array([[True, False]]),
        np.array(["", "b"], object)[None],
        np.array([""], object),
        np.array([b""], object),
    ],
)
def test_other_rows_differ_and_are_as_real_ones_are(row):
    for place, other in enumerate(other_rows(row)):
        assert (other.dtype, other.shape) == (row.dtype, row.shape)
        if place == 0 and not row.dtype.hasobject:
            assert (other != row).all()
            assert np.isfinite(other).all()
        assert not np.array_equal(other, row, equal_nan=row.dtype.kind == "f")
    assert len(other_rows(row)) == 2


def test_there_is_no_other_row_without_values():
    assert other_rows(np.zeros((1, 0), "f4")) == []


def test_outputs_are_alike_but_for_rounding():
    assert alike(np.float32([1, np.nan, 1e-9]), np.float32([1.000001, np.nan, 2e-9]))
    assert not alike(np.float32([1, 2]), np.float32([1, np.nan]))
    assert not alike(np.array([1, 2]), np.array([1, 3]))


def test_variables_are_put_back_that_have_changed():
    stays, changes = Variable([np.nan]), Variable(1.0)
    kept = Kept([stays, changes], lambda variable: variable.value)
    assert not kept.put_back()
    changes.value = np.asarray(np.nan)
    assert kept.put_back()
    assert (stays.assigned, changes.assigned, float(changes.value)) == (0, 1, 1.0)
