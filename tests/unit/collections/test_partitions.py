"""What users pass as data, as partitions."""

from __future__ import annotations

import dask
import dask.array as da
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_train.collections import check_data, delayed_parts
from dask_train.collections import partitions as partitions_module
from dask_train.collections.pieces import describe, part

X, Y = np.arange(20.0).reshape(10, 2), np.arange(10)


def computed(data, what="data['worker']"):
    parts = delayed_parts(check_data(what, data), part)
    return dask.compute(*parts, scheduler="synchronous")


def unknown(array: da.Array) -> da.Array:
    """The same rows, as what was filtered has them: nobody knows how many."""
    return array[da.ones(array.shape[0], chunks=array.chunks[0], dtype=bool)]


@pytest.mark.parametrize(
    ("data", "names", "is_tuple", "count"),
    [
        (X, None, False, 1),
        ((X,), None, True, 1),
        ([X, Y], None, True, 2),
        ({"image": X, "label": da.from_array(Y, chunks=3)}, ("image", "label"), False, 2),
    ],
)
def test_the_shape_of_what_was_passed_is_kept(data, names, is_tuple, count):
    columns = check_data("data", data)
    assert (columns.names, columns.is_tuple, len(columns.arrays)) == (names, is_tuple, count)


def test_all_columns_are_cut_at_the_same_rows():
    parts = computed((da.from_array(X, chunks=(4, 1)), da.from_array(Y, chunks=3)))
    assert [[array.shape for array in columns] for columns in parts] == [[(4, 2), (4,)], [(4, 2), (4,)], [(2, 2), (2,)]]
    np.testing.assert_array_equal(np.concatenate([columns[0] for columns in parts]), X)
    np.testing.assert_array_equal(np.concatenate([columns[1] for columns in parts]), Y)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 12), st.integers(1, 12), st.integers(1, 2))
def test_rows_stay_together(x_rows, y_rows, x_columns):
    for columns in computed((da.from_array(X, chunks=(x_rows, x_columns)), da.from_array(Y, chunks=y_rows))):
        assert all(array.flags.c_contiguous for array in columns)
        np.testing.assert_array_equal(columns[0][:, 0], 2 * columns[1])


def test_arrays_of_a_client_travel_in_pieces(monkeypatch):
    monkeypatch.setattr(partitions_module, "PIECE_BYTES", 64)
    assert [len(columns[0]) for columns in computed(X)] == [4, 4, 2]
    assert len(computed(np.zeros((2, 100)))) == 2, "a row is never cut"
    assert [columns[0].shape for columns in computed(np.zeros((3, 0)))] == [(3, 0)]


def test_arrays_of_unknown_length():
    x, y = unknown(da.from_array(X, chunks=(4, 1))), unknown(da.from_array(Y, chunks=4))
    parts = computed((x, y))
    assert [describe(columns)[0] for columns in parts] == [4, 4, 2]
    assert parts[0][0].shape == (4, 2)
    with pytest.raises(ValueError, match=r"unknown length have 3 and 4 chunks. Call compute_chunk_sizes\(\) on both"):
        delayed_parts(check_data("data", (x, unknown(da.from_array(Y, chunks=3)))), part)


def test_pieces_of_unknown_length_that_differ_are_found_out():
    x, y = unknown(da.from_array(X, chunks=(4, 2))), unknown(da.from_array(Y, chunks=(3, 4)[:1]))
    with pytest.raises(ValueError, match="have 3 and 4 chunks"):
        delayed_parts(check_data("data", (x, y)), part)
    with pytest.raises(ValueError, match="the arrays of one partition have 2, 3 rows; cut them alike"):
        part(X[:2], Y[:3])


def test_what_a_partition_says_of_itself():
    columns = part(X.T[:, ::2].T, Y[::2])
    assert describe(columns) == (5, [("<f8", (2,)), ("<i8", ())])
    assert columns[0].flags.c_contiguous


class Frame:
    """Stands in for a data frame of pandas, which need not be installed."""


Frame.__module__ = "pandas.core.frame"


@pytest.mark.parametrize(
    ("data", "error", "text"),
    [
        ((), ValueError, r"data\['worker'\] is empty; pass arrays"),
        ({}, ValueError, "is empty"),
        ((X, Y[:7]), ValueError, "have 10, 7 rows; they have to be the same"),
        (X[:0], ValueError, "has no rows"),
        ((X, Frame()), TypeError, r"has a Frame. Pass arrays: frame\[features\].to_dask_array\(lengths=True\)"),
        ((X, [1, 2]), TypeError, "has a list; pass Dask or NumPy arrays"),
        ("x.csv", TypeError, "has a str; pass Dask or NumPy arrays"),
        (np.array(3.0), ValueError, "an array without an axis; rows lie along the first one"),
        (da.ones(()), ValueError, "an array without an axis"),
        (np.array(["a", None], dtype=object), TypeError, "has an array of object; make it numbers, with astype"),
    ],
)
def test_what_is_refused(data, error, text):
    with pytest.raises(error, match=text):
        check_data("data['worker']", data)
