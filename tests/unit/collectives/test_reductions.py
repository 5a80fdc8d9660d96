"""Sums, means, maxima and minima by dtype, as ranks come to them together."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_train.collectives.reductions import Reduction


def reduced(op, *arrays):
    """What the ranks come to that have these."""
    reduction = Reduction(op)
    total = functools.reduce(reduction.combine, [reduction.before(array) for array in arrays])
    return reduction.after(total, arrays[0].dtype, len(arrays))


@pytest.mark.parametrize(
    ("op", "dtype", "values", "expected", "found_dtype"),
    [
        ("sum", "f4", (1, 2, 4), 7, "f4"),
        ("sum", "f2", (1, 2, 4), 7, "f2"),
        ("sum", "f2", (60000, 60000, -60000), 60000, "f2"),  # more in between
        ("sum", "f2", (2048, 1, 1), 2050, "f2"),
        ("sum", "c8", (1j, 2), 2 + 1j, "c8"),
        ("sum", "i1", (100, 27), 127, "i1"),
        ("sum", "i1", (100, 100, -73), 127, "i1"),  # more in between
        ("sum", "u1", (200, 55), 255, "u1"),
        ("sum", "u8", (2**63, 5), 2**63 + 5, "u8"),
        ("mean", "f4", (1, 2), 1.5, "f4"),
        ("mean", "f2", (60000, 60000), 60000, "f2"),
        ("mean", "i4", (1, 2), 1.5, "f8"),
        ("mean", "c8", (1j, 2), 1 + 0.5j, "c8"),
        ("max", "i1", (-128, 127), 127, "i1"),
        ("min", "u2", (3, 2), 2, "u2"),
        ("max", "?", (False, True), True, "?"),
        ("min", "?", (False, True), False, "?"),
    ],
)
def test_what_ranks_come_to(op, dtype, values, expected, found_dtype):
    found = reduced(op, *(np.array([value], dtype) for value in values))
    assert (found.tolist(), found.dtype) == ([expected], np.dtype(found_dtype))


@pytest.mark.parametrize("op", ["sum", "mean", "max", "min"])
def test_nan_makes_nan(op):
    assert np.isnan(reduced(op, np.array([1.0]), np.array([np.nan]), np.array([2.0]))).all()


@pytest.mark.parametrize(("op", "dtype"), [("sum", "?"), ("mean", "?"), ("max", "c8"), ("min", "U3"), ("sum", "M8[s]")])
def test_dtypes_without_such_a_reduction_are_refused(op, dtype):
    with pytest.raises(TypeError, match=rf"all_reduce\(op='{op}'\) was given an array of"):
        Reduction(op).before(np.zeros(2, dtype))


@pytest.mark.parametrize("op", ["prod", "", None, 3])
def test_there_are_four(op):
    with pytest.raises(ValueError, match="it is 'sum', 'mean', 'max' or 'min'"):
        Reduction(op)


@given(st.lists(st.integers(-128, 127), min_size=1, max_size=5))
def test_a_sum_of_small_integers_is_right_or_refused(values):
    arrays = [np.array([value], "i1") for value in values]
    if -128 <= sum(values) <= 127:
        assert reduced("sum", *arrays).tolist() == [sum(values)]
    else:
        with pytest.raises(OverflowError, match=r"int8 holds -128 to 127. Pass x.astype\('int64'\)"):
            reduced("sum", *arrays)


def test_no_elements():
    assert reduced("sum", np.zeros((0, 3), "i1"), np.zeros((0, 3), "i1")).shape == (0, 3)
