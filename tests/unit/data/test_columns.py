"""Aligned columns in one piece of memory."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_train.data.columns import ALIGNMENT_BYTES, Column, Layout, column_of, open_columns, same_columns

COLUMNS = st.builds(
    lambda dtype, shape: Column(dtype=np.dtype(dtype).str, row_shape=shape),
    st.sampled_from(["f4", "f8", "i1", "?", "S3", "datetime64[s]"]),
    st.lists(st.integers(0, 3), max_size=3).map(tuple),
)
LAYOUTS = st.builds(
    lambda columns, lengths: Layout(columns=tuple(columns), names=None, is_tuple=True, lengths=tuple(lengths)),
    st.lists(COLUMNS, min_size=1, max_size=4),
    st.lists(st.integers(0, 20), min_size=1, max_size=4),
)


def layout(*columns: tuple[str, tuple[int, ...]], lengths: tuple[int, ...] = (3,)) -> Layout:
    return Layout(
        columns=tuple(Column(dtype=d, row_shape=s) for d, s in columns), names=None, is_tuple=True, lengths=lengths
    )


@given(LAYOUTS)
def test_columns_are_aligned_and_apart(found):
    offsets = found.offsets()
    assert len(offsets) == len(found.columns) + 1
    assert (offsets[0], offsets[-1]) == (0, found.size_bytes)
    for column, start, end in zip(found.columns, offsets, offsets[1:], strict=False):
        assert start % ALIGNMENT_BYTES == 0
        assert 0 <= end - start - column.row_bytes * found.num_rows < ALIGNMENT_BYTES


def test_sizes():
    found = layout(("<f4", (2, 3)), ("<i8", ()), lengths=(2, 0, 1))
    assert found.num_rows == 3
    assert [column.row_bytes for column in found.columns] == [24, 8]
    assert found.offsets() == [0, 128, 192]


@given(LAYOUTS)
def test_what_is_written_there_is_mapped(found):
    descriptor = os.memfd_create("columns")
    try:
        os.truncate(descriptor, found.size_bytes)
        written = []
        for column, offset in zip(found.columns, found.offsets(), strict=False):
            count = column.row_bytes * found.num_rows
            data = bytes((offset + position) % 2 for position in range(count))
            os.pwrite(descriptor, data, offset)
            written.append(data)
        mapped = open_columns(descriptor, found)
    finally:
        os.close(descriptor)
    for column, array, data in zip(found.columns, mapped, written, strict=True):
        assert (array.dtype.str, array.shape) == (column.dtype, (found.num_rows, *column.row_shape))
        assert array.flags.c_contiguous
        assert array.tobytes() == data


def test_what_one_process_writes_into_it_it_alone_sees():
    found = layout(("<i8", ()))
    descriptor = os.memfd_create("columns")
    os.truncate(descriptor, found.size_bytes)
    (mine,), (theirs,) = open_columns(descriptor, found), open_columns(descriptor, found)
    mine[:] = 7
    assert theirs.tolist() == [0, 0, 0]
    assert os.pread(descriptor, 24, 0) == bytes(24)
    os.close(descriptor)
    assert mine.sum() == 21, "the mapping needs no descriptor"


def test_columns_without_bytes_need_no_memory():
    (empty, wide) = open_columns(-1, layout(("<i8", ()), ("<f4", (5,)), lengths=(0, 0)))
    assert (empty.shape, wide.shape) == ((0,), (0, 5))


def test_what_an_array_says_of_its_column():
    assert column_of(np.zeros((4, 2, 3), "f4")) == Column(dtype="<f4", row_shape=(2, 3))
    assert column_of(np.zeros(4, "S5")) == Column(dtype="|S5", row_shape=())
    with pytest.raises(TypeError, match="an array of object holds Python objects; make it numbers, with astype"):
        column_of(np.array(["a", None], dtype=object))
    with pytest.raises(TypeError, match="holds Python objects"):
        column_of(np.zeros(2, dtype=[("x", object)]))


def test_partitions_have_the_same_columns():
    one = (Column(dtype="<f4", row_shape=(2,)),)
    other = (Column(dtype="<f8", row_shape=(2,)),)
    assert same_columns([one, one]) == one
    with pytest.raises(ValueError, match=r"partition 0 has columns .*<f4.* and partition 2 has .*<f8.*; make them"):
        same_columns([one, one, other])
