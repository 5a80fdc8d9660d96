"""What a Dask worker tells of the segments that it holds."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_train.data.segment import Segment
from dask_train.worker import offers

PARTS = [
    [np.arange(4), np.full((4, 3), 1, "f4"), np.array(["", "gr\u00fcn", b"\xff", "x" * 50], object)],
    [np.arange(0), np.full((0, 3), 1, "f4"), np.array([], object)],
]


@pytest.fixture(scope="module")
def dask_worker(own_pool):
    with own_pool() as pool:
        worker = SimpleNamespace(data={key: Segment(part, pool) for key, part in zip("ab", PARTS, strict=True)})
        yield worker
        worker.data.clear()


def test_what_is_there_is_described_and_nothing_else(dask_worker):
    data = dask_worker.data
    assert offers.describe(["a", "b", "c"], dask_worker=dask_worker) == {
        "a": (4, data["a"].columns),
        "b": (0, data["b"].columns),
    }
    offer = offers.SegmentOffer(data["b"].place, 0, data["b"].columns)
    assert offers.places(["c", "b"], dask_worker=dask_worker) == {"b": offer}


@given(numbers=st.lists(st.integers(0, 3), max_size=9))
def test_rows_come_as_they_were_asked_for_and_are_copies(dask_worker, numbers):
    chosen = np.array(numbers, np.int64)
    columns = dask_worker.data["a"].columns
    ((*found,),) = offers.rows(["a"], [chosen], [4], columns, dask_worker=dask_worker)
    for column, part in zip(found, PARTS[0], strict=True):
        np.testing.assert_array_equal(column, part[chosen])
        assert column.flags.owndata or column.base.flags.owndata, "copied, so that no mapping is kept"


def test_rows_of_several_segments_come_all_or_not_at_all(dask_worker):
    first, none = np.array([3]), np.array([], np.int64)
    columns = dask_worker.data["a"].columns
    found = offers.rows(["b", "a"], [none, first], [0, 4], columns, dask_worker=dask_worker)
    assert [columns[0].tolist() for columns in found] == [[], [3]]
    assert offers.rows(["a", "c"], [first, first], [4, 4], columns, dask_worker=dask_worker) is None


def test_of_a_segment_that_the_reader_knows_otherwise_no_rows_come(dask_worker):
    first, columns = np.array([0]), dask_worker.data["a"].columns
    for length, known in ((5, columns), (4, columns[:2])):
        assert offers.rows(["a"], [first], [length], known, dask_worker=dask_worker) == [(4, columns)]


@pytest.mark.parametrize("asked", [offers.describe, offers.places])
def test_a_result_that_is_no_segment_is_named(asked: Any):
    with pytest.raises(TypeError, match="d is a list and no segment"):
        asked(["d"], dask_worker=SimpleNamespace(data={"d": [1, 2]}))
