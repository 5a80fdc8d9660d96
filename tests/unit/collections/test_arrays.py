"""Arrays as a source."""

from __future__ import annotations

import dask
import dask.array as da
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_train.collections import blocks, check_data, partition

X, Y = np.arange(20.0).reshape(10, 2), np.arange(10)


def unknown(array: da.Array) -> da.Array:
    """The same rows, as what was filtered has them: nobody knows how many."""
    return array[da.ones(array.shape[0], chunks=array.chunks[0], dtype=bool)]


def test_all_columns_are_cut_at_the_same_rows(computed):
    data = (da.from_array(X, chunks=(4, 1)), da.from_array(Y, chunks=3))
    parts = computed(data)
    assert [[array.shape for array in columns] for columns in parts] == [[(4, 2), (4,)], [(4, 2), (4,)], [(2, 2), (2,)]]
    np.testing.assert_array_equal(np.concatenate([columns[0] for columns in parts]), X)
    np.testing.assert_array_equal(np.concatenate([columns[1] for columns in parts]), Y)
    source = check_data("data", data)
    assert (source.num_rows, source.nbytes, source.lengths) == (10, X.nbytes + Y.nbytes, (4, 4, 2))


def test_rows_stay_together(computed):
    @settings(max_examples=25, deadline=None)
    @given(st.integers(1, 12), st.integers(1, 12), st.integers(1, 2))
    def they_do(x_rows, y_rows, x_columns):
        for columns in computed((da.from_array(X, chunks=(x_rows, x_columns)), da.from_array(Y, chunks=y_rows))):
            assert all(array.flags.c_contiguous for array in columns)
            np.testing.assert_array_equal(columns[0][:, 0], 2 * columns[1])

    they_do()


@pytest.mark.parametrize("shape", [(6,), (6, 2), (6, 2, 3), (6, 2, 1, 3, 2)])
@pytest.mark.parametrize("dtype", ["f4", "i8", "u1", "bool", "c8", ">f8"])
def test_any_rank_and_numbers(computed, shape, dtype):
    values = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    chunked = da.from_array(values, chunks=(4, *(1 for _ in shape[1:])))
    for data in (values, chunked, np.asfortranarray(values)):
        parts = computed(data)
        assert all(columns[0].flags.c_contiguous and columns[0].dtype == dtype for columns in parts)
        np.testing.assert_array_equal(np.concatenate([columns[0] for columns in parts]), values)


def test_one_dict_entry_and_one_tuple_entry(computed):
    assert [len(columns) for columns in computed({"x": X})] == [1]
    assert [columns[0].shape for columns in computed((X,))] == [(10, 2)]


def test_arrays_of_a_client_travel_in_pieces(monkeypatch, computed):
    monkeypatch.setattr(blocks, "PIECE_BYTES", 64)
    assert [len(columns[0]) for columns in computed(X)] == [4, 4, 2]
    assert [len(columns[0]) for columns in computed(pd.DataFrame(X))] == [4, 4, 2]
    assert len(computed(np.zeros((2, 100)))) == 2, "a row is never cut"
    assert [columns[0].shape for columns in computed(np.zeros((3, 0)))] == [(3, 0)]


def test_arrays_of_unknown_length(computed):
    x, y = unknown(da.from_array(X, chunks=(4, 1))), unknown(da.from_array(Y, chunks=4))
    parts = computed((x, y))
    assert [len(columns[1]) for columns in parts] == [4, 4, 2]
    assert parts[0][0].shape == (4, 2)
    source = check_data("data", (x, y))
    assert (source.num_rows, source.nbytes, source.lengths) == (None, None, None)
    with pytest.raises(ValueError, match=r"unknown length have 3 and 4 chunks. Call compute_chunk_sizes\(\) on both"):
        check_data("data", (x, unknown(da.from_array(Y, chunks=3))))


def test_one_array_knows_the_length_of_another(computed):
    data = (unknown(da.from_array(X, chunks=(4, 2))), da.from_array(Y, chunks=4))
    source = check_data("data", data)
    assert (source.num_rows, source.nbytes, source.lengths) == (10, None, (4, 4, 2))
    assert [len(columns[0]) for columns in computed(data)] == [4, 4, 2]


def test_pieces_of_unknown_length_that_differ_are_found_out(computed):
    x, y = unknown(da.from_array(X, chunks=(4, 2))), unknown(da.from_array(Y, chunks=((5, 3, 2),)))
    with pytest.raises(
        ValueError, match=r"arrays of partition \d of data\['worker'\] have \d, \d rows; they have to be"
    ):
        computed((x, y))


def test_empty_and_unequal_chunks(computed):
    parts = computed((da.from_array(X, chunks=((0, 1, 9), (2,))), da.from_array(Y)))
    assert [len(columns[1]) for columns in parts] == [0, 1, 9]


def test_one_task_makes_a_partition():
    source = check_data("data", (da.from_array(X, chunks=(5, 2)), da.from_array(Y, chunks=5)))

    def total(columns):
        return [float(array.sum()) for array in columns]

    parts = source.delayed_parts(partition.part, total)
    assert dask.compute(*parts, scheduler="synchronous") == ([45.0, 10.0], [145.0, 35.0])
    keys = [part.key for part in parts]
    assert all(isinstance(key, str) and key.startswith("part-") for key in keys), "distributed names tasks after it"
    assert not {*keys} & {part.key for part in source.delayed_parts(partition.part, total)}, "two runs share nothing"


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("names", ["abc", "bc", "ac", "cb", "cab", "b"])
def test_columns_of_a_frame_that_is_made_of_an_array(names, order, computed):
    array = np.asarray(np.arange(12.0, dtype="f4").reshape(4, 3), order=order)
    frame = pd.DataFrame(array, columns=list("abc"), copy=False)
    source = check_data("data", frame[list(names)])
    (made,) = source.arrays
    blocks_ = list(dict(made.__dask_graph__()).values())
    is_view = (order, names) in [("C", "abc"), ("F", "b")]
    assert [np.shares_memory(block, array) for block in blocks_] == [is_view], "else they are copied once"
    for frame_ in (frame, frame.iloc[1:2]):
        found = np.concatenate([columns[0] for columns in computed(frame_[list(names)])])
        np.testing.assert_array_equal(found, frame_[list(names)].to_numpy())


def test_columns_of_other_dtypes_are_no_view(computed):
    array = np.arange(12.0).reshape(4, 3)
    frame = pd.DataFrame(array, columns=list("abc"), copy=False).assign(b=[1, 2, 3, 4])
    np.testing.assert_array_equal(np.concatenate([columns[0] for columns in computed(frame)]), frame.to_numpy())
