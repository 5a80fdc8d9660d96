"""Dask arrays over segments that lie in this process: what they are, and by what they are known again."""

from __future__ import annotations

import dask
import dask.array as da
import numpy as np
import pytest

from dask_train.collections import shared
from dask_train.data.columns import Column
from dask_train.data.one_hot import OneHot
from dask_train.data.segment import Segment
from dask_train.errors import DataError

X, Y = np.arange(24, dtype="f4").reshape(12, 2), np.arange(12)
LENGTHS = (5, 0, 4, 3)


COLUMNS = [Column(dtype="<f4", row_shape=(2,)), Column(dtype="<i8", row_shape=())]

pytestmark = pytest.mark.usefixtures("pool")


def made():
    """Segments by key, of uneven lengths, and both columns of them."""
    stops = np.cumsum(LENGTHS)
    cuts = [slice(stop - length, stop) for stop, length in zip(stops, LENGTHS, strict=True)]
    segments = {("part", number): Segment([X[cut], Y[cut]]) for number, cut in enumerate(cuts)}
    return segments, shared.arrays_of(segments, COLUMNS, LENGTHS)


def computed(*arrays):
    return dask.compute(*arrays, scheduler="synchronous")


def test_they_hold_the_rows():
    _, arrays = made()
    x, y = arrays
    assert (x.shape, x.chunks, x.dtype) == ((12, 2), (LENGTHS, (2,)), np.float32)
    assert (y.shape, y.chunks, y.dtype) == ((12,), (LENGTHS,), np.int64)
    for found, wanted in zip(computed(*arrays), (X, Y), strict=True):
        np.testing.assert_array_equal(found, wanted)
    assert computed((x[:, 1] + y).sum(), y[6:9])[0] == X[:, 1].sum() + Y.sum()


def test_blocks_are_read_only_views():
    segments, _ = made()
    segment = segments["part", 0]
    for column in (0, 1):
        found = shared.view(segment, column, 0, LENGTHS[0])
        assert not found.flags.owndata
        with pytest.raises(ValueError, match="read-only"):
            found[:] = 0


def test_a_segment_that_was_computed_again_with_other_rows_is_refused():
    segments, arrays = made()
    segments["part", 2] = Segment([X[:3], Y[:3]])
    changed = shared.arrays_of(segments, COLUMNS, LENGTHS)
    for array in (*changed, shared.decoded(changed[1], OneHot.of(Y))):
        with pytest.raises(DataError, match="Partition 2 of the data set in shared memory had 4 rows and now has 3"):
            computed(array)
    del arrays


def test_what_they_are_made_of_is_found_again():
    segments, arrays = made()
    for number, array in enumerate(arrays):
        found = shared.origin_of(array)
        assert list(found.segments) == list(segments), "in order"
        assert all(found.segments[key] is segments[key] for key in segments)
        assert (found.number, found.num_columns) == (number, 2)


def test_what_was_made_of_them_is_ordinary_dask():
    _, arrays = made()
    x, y = arrays
    for other in (x + 1, x[:6], y[::-1], x.rechunk(3), x.astype("f8"), da.concatenate([y, y]), da.stack([y, y])):
        assert shared.origin_of(other) is None
    assert shared.origin_of(da.arange(3)) is None
    for other in (X, [1, 2], None, "dask-train-rows"):
        assert shared.origin_of(other) is None


def test_arrays_whose_graph_was_changed_are_none_of_them():
    _, arrays = made()
    (optimized,) = dask.optimize(arrays[1])
    found = shared.origin_of(optimized)
    assert found is None or list(found.segments) == [("part", number) for number in range(4)]
    flat = da.Array(dict(arrays[1].dask), arrays[1].name, arrays[1].chunks, dtype=Y.dtype)
    assert shared.origin_of(flat) is None


def test_blocks_that_were_computed_are_none_of_them():
    _, arrays = made()
    x, _ = arrays
    persisted = x.persist(scheduler="synchronous")
    assert persisted.name == x.name
    assert shared.origin_of(persisted) is None
    np.testing.assert_array_equal(*computed(persisted, X))


def test_other_segments_make_arrays_of_other_names():
    segments, arrays = made()
    some = dict(list(segments.items())[:2])
    (fewer,) = shared.arrays_of(some, COLUMNS[:1], LENGTHS[:2])
    names = {array.name for array in (*arrays, fewer)}
    assert len(names) == 3
    again = shared.arrays_of(segments, COLUMNS, LENGTHS)
    assert [array.name for array in again] == [array.name for array in arrays]
    assert list(shared.origin_of(fewer).segments) == list(some)


def test_both_together_compute_as_one():
    """Their layers of segments are the same one, so that merging graphs does not double or lose any."""
    _, arrays = made()
    x, y = arrays
    joined = da.concatenate([x, y[:, None]], axis=1)
    np.testing.assert_array_equal(*computed(joined, np.column_stack([X, Y])))


def test_decoded_arrays_have_the_rows_of_batches_and_are_known_by_their_segments():
    segments, (_, y) = made()
    found = shared.decoded(y, OneHot.of(np.arange(12)))
    assert (found.shape, found.chunks, found.dtype) == ((12, 12), (LENGTHS, (12,)), np.float64)
    np.testing.assert_array_equal(*computed(found, np.eye(12)))
    origin = shared.origin_of(found)
    assert (list(origin.segments), origin.number, origin.num_columns) == (list(segments), 1, 2)
    assert origin.decoded == Column(dtype="<i8", row_shape=(), decoder=OneHot.of(np.arange(12)))
    assert shared.origin_of(y).decoded is None
    assert shared.origin_of(found[:5]) is None


def test_arrays_that_are_decoded_in_other_ways_have_other_names():
    _, (_, y) = made()
    several = [shared.decoded(y, OneHot.of(np.arange(num))) for num in (12, 13, 12)]
    assert several[0].name == several[2].name != several[1].name
