"""Rows in another program's memory: read where they lie, wherever in it they begin."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from dask_train.data.borrowing import borrow
from dask_train.data.columns import Columns, column_of
from dask_train.data.lent import LentSegment, MappedMemory
from dask_train.data.rows import Rows, held_by

# Row shapes of float32: of 4 bytes, of 3136, which has 64 in common with a page, and of 12.
SHAPES = [(), (28, 28), (3,)]


@contextmanager
def lent(parts: list[list[np.ndarray]], at: int = 64) -> Iterator[list[LentSegment]]:
    """Put arrays into one file of ours as a daemon would: each at the next multiple of ``at``, but for a first gap."""
    file = os.memfd_create("daemon", os.MFD_CLOEXEC)
    os.ftruncate(file, 1 << 20)
    end, found = at, []
    for arrays in parts:
        offsets = []
        for array in arrays:
            offsets.append(end)
            os.pwrite(file, array.tobytes(), end)
            end = -(-(end + array.nbytes) // at) * at
        place = MappedMemory(descriptor=file, inode=os.fstat(file).st_ino, offsets=tuple(offsets), owner=parts)
        found.append(LentSegment([column_of(array) for array in arrays], len(arrays[0]), place))
    try:
        yield found
    finally:
        os.close(file)


def parts_of(*lengths: int) -> list[list[np.ndarray]]:
    rng = np.random.default_rng(0)
    return [[rng.random((length, *shape), np.float32) for shape in SHAPES] for length in lengths]


def test_readers_map_rows_that_begin_anywhere():
    parts = parts_of(7, 5, 1, 11)
    with lent(parts) as segments:
        descriptor = borrow([segment.place for segment in segments])
        assert descriptor is not None
        held = held_by(((number, 0, segment.place) for number, segment in enumerate(segments)), len(SHAPES))
        schema = Columns(columns=segments[0].columns, names=None, is_tuple=True)
        try:
            rows = Rows(schema, np.array([7, 5, 1, 11]), held, [descriptor])
        finally:
            os.close(descriptor)
    for number, arrays in enumerate(parts):
        for found, array in zip(rows.partition(number), arrays, strict=True):
            np.testing.assert_array_equal(found, array)
    partition, row = np.array([3, 0, 1, 3]), np.array([10, 6, 0, 0])
    taken = [column.empty(4) for column in schema.columns]
    rows.take(partition, row, taken)
    for column, out in enumerate(taken):
        np.testing.assert_array_equal(out, [parts[p][column][r] for p, r in zip(partition, row, strict=True)])


def test_it_travels_as_a_copy(own_pool):
    parts = parts_of(6)
    with lent(parts) as (segment,), own_pool(0.0):
        travelled = pickle.loads(pickle.dumps(segment, protocol=5))
        assert type(travelled) is not LentSegment
        for segments in (segment, travelled):
            for found, array in zip(segments.arrays(), parts[0], strict=True):
                np.testing.assert_array_equal(found, array)
    assert segment.nbytes == sum(array.nbytes for array in parts[0])


def test_dask_counts_none_of_its_memory():
    with lent(parts_of(50)) as (segment,):
        assert segment.__sizeof__() < 1_000 < segment.nbytes


@pytest.mark.parametrize(
    ("offset", "row", "fits"), [(64, 3136, True), (64, 1024, False), (4096, 1024, True), (4, 3, True)]
)
def test_rows_of_many_bytes_have_to_begin_at_multiples_of_what_they_share_with_a_page(offset, row, fits):
    column = column_of(np.empty((0, row), np.uint8))
    assert LentSegment.fits([column], [offset]) is fits


def test_text_is_never_lent():
    assert not LentSegment.fits([column_of(np.array(["a"], object))], [0])
