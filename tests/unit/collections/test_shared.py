"""Dask arrays over segments that lie in this process: what they are, and by what they are known again."""

from __future__ import annotations

import dask
import dask.array as da
import numpy as np
import pytest

from dask_train.collections import shared
from dask_train.data.segment import Segment

X, Y = np.arange(24, dtype="f4").reshape(12, 2), np.arange(12)
LENGTHS = (5, 0, 4, 3)


COLUMNS = [("<f4", (2,)), ("<i8", ())]

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
        found = shared.view(segment, column)
        assert not found.flags.owndata
        with pytest.raises(ValueError, match="read-only"):
            found[:] = 0


def test_what_they_are_made_of_is_found_again():
    segments, arrays = made()
    for number, array in enumerate(arrays):
        found, column, num_columns = shared.segments_of(array)
        assert list(found) == list(segments), "in order"
        assert all(found[key] is segments[key] for key in segments)
        assert (column, num_columns) == (number, 2)


def test_what_was_made_of_them_is_ordinary_dask():
    _, arrays = made()
    x, y = arrays
    for other in (x + 1, x[:6], y[::-1], x.rechunk(3), x.astype("f8"), da.concatenate([y, y]), da.stack([y, y])):
        assert shared.segments_of(other) is None
    assert shared.segments_of(da.arange(3)) is None
    for other in (X, [1, 2], None, "dask-train-rows"):
        assert shared.segments_of(other) is None


def test_arrays_whose_graph_was_changed_are_none_of_them():
    _, arrays = made()
    (optimized,) = dask.optimize(arrays[1])
    found = shared.segments_of(optimized)
    assert found is None or list(found[0]) == [("part", number) for number in range(4)]
    flat = da.Array(dict(arrays[1].dask), arrays[1].name, arrays[1].chunks, dtype=Y.dtype)
    assert shared.segments_of(flat) is None


def test_blocks_that_were_computed_are_none_of_them():
    _, arrays = made()
    x, _ = arrays
    persisted = x.persist(scheduler="synchronous")
    assert persisted.name == x.name
    assert shared.segments_of(persisted) is None
    np.testing.assert_array_equal(*computed(persisted, X))


def test_other_segments_make_arrays_of_other_names():
    segments, arrays = made()
    some = dict(list(segments.items())[:2])
    (fewer,) = shared.arrays_of(some, [("<f4", (2,))], LENGTHS[:2])
    names = {array.name for array in (*arrays, fewer)}
    assert len(names) == 3
    again = shared.arrays_of(segments, COLUMNS, LENGTHS)
    assert [array.name for array in again] == [array.name for array in arrays]
    assert list(shared.segments_of(fewer)[0]) == list(some)


def test_both_together_compute_as_one():
    """Their layers of segments are the same one, so that merging graphs does not double or lose any."""
    _, arrays = made()
    x, y = arrays
    joined = da.concatenate([x, y[:, None]], axis=1)
    np.testing.assert_array_equal(*computed(joined, np.column_stack([X, Y])))
