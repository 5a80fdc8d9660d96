"""A partition in shared memory: the rows that were put in, for as long as anybody has them, and no longer."""

from __future__ import annotations

import copy
import gc
import mmap
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dask_train.data import segment as segment_module
from dask_train.data.alignment import ALIGNMENT_BYTES
from dask_train.data.columns import column_of
from dask_train.data.segment import Segment, stored

DTYPES = ["O", "f4", ">f8", "<i8", ">i2", "u1", "?", "c8", "f2", "U5", ">U2", "S3", "M8[s]", "m8[ns]", "V6"]

COPIES = """
import os, pickle, sys
import numpy as np
segment = pickle.load(sys.stdin.buffer)
assert segment.place.pid == os.getpid()
pickle.dump([np.array(array) for array in segment.arrays()], sys.stdout.buffer)
"""


@st.composite
def partitions(draw):
    """Columns with the same number of rows, in any memory order."""
    num_rows = draw(st.integers(0, 12))
    arrays = []
    for dtype in draw(st.lists(st.sampled_from(DTYPES), min_size=1, max_size=4)):
        shape = (num_rows, *draw(st.lists(st.integers(0, 4), max_size=2)))
        data = draw(st.binary(min_size=8, max_size=8))
        if dtype == "O":
            some = st.text(st.characters(exclude_categories=["Cs"])) | st.binary()
            text = draw(st.lists(some, min_size=1, max_size=5))
            arrays.append(np.resize(np.array(text, object), shape)[::-1])
            continue
        count = int(np.prod(shape)) * np.dtype(dtype).itemsize
        raw = (data * (count // 8 + 1))[:count]
        if np.dtype(dtype).kind in "U?":  # not all bytes are characters or booleans
            raw = bytes(np.resize(np.array([1, 0, 1] if dtype == "?" else ["a", "bc", ""], dtype), shape).tobytes())
        array = np.frombuffer(raw, dtype).reshape(shape)
        how = draw(st.sampled_from(["plain", "fortran", "backwards"]))
        arrays.append({"plain": array, "fortran": np.asfortranarray(array), "backwards": array[::-1]}[how])
    return arrays


def check(segment: Segment, arrays: list[np.ndarray]) -> None:
    assert segment.num_rows == len(arrays[0])
    assert segment.columns == tuple(map(column_of, arrays))
    assert segment.nbytes == stored(arrays).nbytes
    for found, array in zip(segment.arrays(), arrays, strict=True):
        assert (found.dtype, found.shape) == (array.dtype, array.shape)
        assert found.tolist() == array.tolist() if array.dtype == object else found.tobytes() == array.tobytes()
        assert found.flags.c_contiguous
        assert not (found.size and found.flags.writeable) or array.dtype == object
    some = np.arange(segment.num_rows)[::-2]
    for found, array in zip(segment.rows(some), arrays, strict=True):
        same = found.tolist() == array[some].tolist() if array.dtype == object else None
        assert found.tobytes() == array[some].tobytes() if same is None else same


@given(partitions())
@settings(deadline=None)
def test_what_is_put_in_is_there(own_pool, arrays):
    with own_pool() as pool:
        segment = Segment(arrays, pool)
        check(segment, arrays)
        place = segment.place
        assert (place.pid, place.descriptor, place.inode) == (os.getpid(), pool.descriptor, pool.inode)
        end = place.start
        images = stored(arrays).images
        for column, image, offset in zip(segment.columns, images, place.offsets, strict=True):
            assert offset >= end, "columns follow each other"
            assert offset % max(1, column.row_bytes) == 0, "rows can be numbered through the file"
            end = offset + image.nbytes
        assert end <= place.stop
        del segment


@given(partitions(), st.integers(2, 5))
@settings(deadline=None, max_examples=40)
def test_it_is_pickled_with_its_rows(own_pool, arrays, protocol):
    with own_pool() as pool, pytest.MonkeyPatch.context() as patch:
        patch.setattr(segment_module, "process_pool", lambda: pool)
        segment = Segment(arrays, pool)
        check(pickle.loads(pickle.dumps(segment, protocol)), arrays)
        check(copy.deepcopy(segment), arrays)
        buffers: list[pickle.PickleBuffer] = []
        data = pickle.dumps(segment, 5, buffer_callback=buffers.append)
        assert [buffer.raw().nbytes for buffer in buffers] == [
            image.nbytes for image in stored(arrays).images if image.nbytes
        ]
        assert len(data) < 1000, "the rows are beside it, not copied"
        check(pickle.loads(data, buffers=[bytes(buffer.raw()) for buffer in buffers]), arrays)
        assert pool.used_bytes == segment.place.stop - segment.place.start + -segment.place.stop % mmap.PAGESIZE
        del segment, buffers


@given(hnp.arrays("f4", st.tuples(st.integers(0, 200), st.integers(1, 40))))
@settings(deadline=None, max_examples=40)
def test_columns_are_aligned_where_that_costs_little(own_pool, array):
    with own_pool() as pool:
        first, second = Segment([array, array], pool).place.offsets
        size = array.nbytes
        assert 0 <= second - first - size <= max(ALIGNMENT_BYTES**2, size // 8) + array.strides[0]
        if array.strides[0] <= ALIGNMENT_BYTES:
            assert first % ALIGNMENT_BYTES == second % ALIGNMENT_BYTES == 0


def test_rows_that_are_much_larger_than_a_page(own_pool):
    with own_pool() as pool:
        array = np.arange(2 * 10_007, dtype="f4").reshape(2, 10_007)
        segments = [Segment([array, array], pool) for _ in range(3)]
        for segment in segments:
            check(segment, [array, array])
            assert all(offset % (4 * 10_007) == 0 for offset in segment.place.offsets)
            assert segment.place.stop - segment.place.start <= 2 * 3 * 4 * 10_007, "a row more a column, at most"
        del segment, segments


def test_another_process_gets_a_copy(pool):
    arrays = [np.arange(24.0).reshape(4, 6), np.array(["a", "bc", "", "d"])]
    ended = subprocess.run(
        [sys.executable, "-c", COPIES], input=pickle.dumps(Segment(arrays)), capture_output=True, timeout=60, check=True
    )
    for found, array in zip(pickle.loads(ended.stdout), arrays, strict=True):
        np.testing.assert_array_equal(found, array)


def test_a_view_keeps_the_memory(own_pool):
    with own_pool() as pool:
        segment = Segment([np.arange(5), np.ones(5)], pool)
        rows = segment.arrays()[0][1:3]
        del segment
        gc.collect()
        assert pool.used_bytes
        other = Segment([np.full(5, 7), np.zeros(5)], pool)
        assert rows.tolist() == [1, 2]
        with pytest.raises(ValueError, match="read-only"):
            rows[:] = 0
        with pytest.raises(ValueError, match="cannot set WRITEABLE"):
            rows.flags.writeable = True
        del rows
        gc.collect()
        assert pool.used_bytes == mmap.PAGESIZE
        del other
        assert pool.used_bytes == 0


def test_the_process_that_was_forked_frees_nothing(own_pool, monkeypatch):
    with own_pool() as pool:
        segment = Segment([np.arange(5)], pool)
        start, size = segment.place.start, segment.place.stop - segment.place.start
        monkeypatch.setattr(pool, "pid", pool.pid + 1)  # as it is for the child
        del segment
        assert pool.used_bytes
        pool.free(start, size)


def test_dask_reckons_with_the_rows(own_pool):
    with own_pool() as pool:
        segment = Segment([np.zeros(100_000)], pool)
        assert 800_000 <= sys.getsizeof(segment) < 801_000
        assert repr(segment) == "<Segment: 100,000 rows, 800,000 bytes>"
        del segment


@pytest.mark.parametrize(
    ("arrays", "error", "why"),
    [
        ([np.array([None, 1])], TypeError, "an array of object holds Python objects"),
        ([np.zeros(2), np.array(["a", 3], object)], TypeError, "an array of object holds Python objects"),
        ([np.zeros(2), np.zeros(3), np.zeros(2)], ValueError, "the arrays of one partition have 2, 3 rows"),
    ],
)
def test_what_can_not_be_put_in(own_pool, arrays, error, why):
    with own_pool() as pool, pytest.raises(error, match=why):
        Segment(arrays, pool)


def test_nothing_is_left_where_writing_fails(own_pool, monkeypatch):
    with own_pool() as pool:

        def write(position: int, data: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(pool, "write", write)
        with pytest.raises(OSError, match="No space left"):
            Segment([np.arange(5)], pool)
