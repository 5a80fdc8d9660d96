"""A data set as a reader has it: its rows are those of plain arrays, and nothing stays when it goes."""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_train.data.alignment import ALIGNMENT_BYTES
from dask_train.data.rows import Rows, held_by
from dask_train.data.segment import Segment, SegmentPlace

# dtype and row shape, with rows of 1 byte to more than a page, none a multiple of the other
COLUMNS = [
    ("f4", ()),
    (">f8", (3,)),
    ("u1", (7, 1)),
    ("?", ()),
    ("U3", (2,)),
    ("M8[s]", ()),
    ("i8", (0,)),
    ("i2", (2501,)),
    ("O", ()),
    ("O", (2,)),
]


def rows_like(dtype: str, shape: tuple[int, ...], num_rows: int, first: int) -> np.ndarray:
    """Rows that differ from each other, and from those with other numbers."""
    count = int(np.prod(shape))
    if dtype == "O":
        numbers = range(first * count, (first + num_rows) * count)
        return np.array([f"{number}" * (number % 50) for number in numbers], object).reshape(num_rows, *shape)
    return np.arange(first * count, (first + num_rows) * count).astype(dtype).reshape(num_rows, *shape)


@st.composite
def data_sets(draw):
    """Partitions, which of some pools each lies in (or none: it is elsewhere), and what is allocated between them."""
    columns = draw(st.lists(st.sampled_from(COLUMNS), min_size=1, max_size=3))
    lengths = draw(st.lists(st.integers(0, 9), min_size=1, max_size=8))
    first = np.cumsum(lengths) - lengths
    parts = [[rows_like(*column, n, int(start)) for column in columns] for n, start in zip(lengths, first, strict=True)]
    pools = draw(st.lists(st.none() | st.integers(0, 2), min_size=len(parts), max_size=len(parts)))
    gaps = draw(st.lists(st.integers(0, 3), min_size=len(parts), max_size=len(parts)))
    return parts, pools, gaps


@given(data_sets(), st.data())
@settings(deadline=None)
def test_what_is_taken_is_what_plain_arrays_have(own_pool, table_of, mapped, given_set, data):
    parts, where, gaps = given_set
    table = table_of(parts)
    with ExitStack() as stack:
        pools = [stack.enter_context(own_pool()) for _ in range(3)]
        between = [Segment([np.zeros((gap, 5000))], pools[0]) for gap in gaps]
        segments = {}
        for number, (part, pool) in enumerate(zip(parts, where, strict=True)):
            between.append(Segment([np.zeros((gaps[number], 5000))], pools[number % 3]))
            if pool is not None:
                segments[number] = Segment(part, pools[pool])
        rows = mapped(table, segments)
        here = [pool is not None or not len(part[0]) for part, pool in zip(parts, where, strict=True)]
        assert rows.is_here(np.arange(len(parts))).tolist() == here
        assert rows.all_here == all(here)
        places = [(number, row) for number, part in enumerate(parts) if here[number] for row in range(len(part[0]))]
        chosen = data.draw(st.lists(st.sampled_from(places), max_size=20)) if places else []
        partition, row = np.array(chosen, np.int64).reshape(-1, 2).T
        out = [column.empty(len(chosen)) for column in table.schema.columns]
        rows.take(partition, row, out)
        for number, found in enumerate(out):
            expected = [parts[partition][number][row] for partition, row in chosen]
            assert found.tolist() == (np.stack(expected).tolist() if expected else [])
        for number in segments:
            if its := len(parts[number][0]):
                starts = rows.starts(np.full(its, number), np.arange(its), its)
                for (start,), column, array in zip(starts, rows.columns, parts[number], strict=True):
                    if start >= 0:
                        assert column.dtype == array.dtype
                        np.testing.assert_array_equal(column[start : start + its], array)
        between, segments, rows, column, starts = [], {}, None, None, None


@pytest.fixture
def whole(own_pool, table_of, mapped):
    """Two partitions of 64 bytes a row, and as rows."""
    parts = [[np.arange(320.0).reshape(40, 8)], [np.arange(320.0, 640.0).reshape(40, 8)]]
    with own_pool() as pool:
        held = [mapped(table_of(parts), {number: Segment(part, pool) for number, part in enumerate(parts)})]
        yield held
        held.clear()


def starts(rows, *stretches):
    """Where stretches of (partition, row) pairs begin in the first column."""
    pairs = np.array(stretches, np.int64)
    return rows.starts(*pairs.reshape(-1, 2).T, pairs.shape[1])[0]


def test_rows_that_follow_each_other_are_read_in_place(whole):
    (rows,) = whole
    (start, _) = starts(rows, [(1, 3), (1, 4), (1, 5)], [(0, 3), (0, 4), (0, 5)])
    view = rows.columns[0][start : start + 3]
    assert view.ctypes.data % ALIGNMENT_BYTES == 0
    np.testing.assert_array_equal(view, np.arange(320.0, 640.0).reshape(40, 8)[3:6])


@pytest.mark.parametrize("stretch", [[(0, 0), (0, 1), (0, 3)], [(0, 1), (0, 3), (0, 4)], [(0, 38), (0, 39), (1, 0)]])
def test_rows_that_do_not_are_not(whole, stretch):
    following = [(1, 1), (1, 2), (1, 3)]
    found = starts(whole[0], following, stretch, following)
    assert found[0] == found[2] >= 0
    assert found[1] == -1


def test_rows_that_are_not_aligned_are_not(own_pool, table_of, mapped):
    parts = [[np.arange(100, dtype="f4"), np.arange(100.0)]]
    with own_pool() as pool:
        rows = mapped(table_of(parts), {0: Segment(parts[0], pool)})
        row = np.add.outer(np.arange(64), np.arange(10)).ravel()
        found = rows.starts(np.zeros(640, np.int64), row, 10)
        first, second = ([n for n, start in enumerate(its) if start >= 0] for its in found)
        assert first == [0, 16, 32, 48]
        assert second == [0, 8, 16, 24, 32, 40, 48, 56]
        del rows


def test_what_is_written_changes_this_reader_only(own_pool, table_of, mapped):
    part = [np.zeros((1000, 8))]
    with own_pool() as pool:
        segment = Segment(part, pool)
        one, other = (mapped(table_of([part]), {0: segment}) for _ in range(2))
        ((start,),) = one.starts(np.zeros(1000, np.int64), np.arange(1000), 1000)
        one.columns[0][start : start + 1000] = 1
        assert one.columns[0][start : start + 1000].min() == 1
        assert other.columns[0][start : start + 1000].max() == 0
        assert segment.arrays()[0].max() == 0
        del segment, one, other


def test_rows_that_were_lent_are_forgotten_and_were_nobody_elses(own_pool, table_of, mapped):
    parts = [[np.arange(8000.0).reshape(1000, 8), np.arange(1000)], [np.ones((10, 8)), np.ones(10, int)]]
    with own_pool() as pool:
        segments = {number: Segment(part, pool) for number, part in enumerate(parts)}
        one, other = (mapped(table_of(parts), segments) for _ in range(2))
        lent = one.lent(0, 300, 500)
        np.testing.assert_array_equal(lent[0], parts[0][0][300:800])
        assert all(np.shares_memory(view, column) for view, column in zip(lent, one.columns, strict=True))
        for view in lent:
            np.negative(view, out=view)
        assert other.lent(0, 300, 500)[0].min() > 0
        one.forget(lent)
        for view, column in zip(lent, parts[0], strict=True):
            np.testing.assert_array_equal(view, column[300:800])
        np.testing.assert_array_equal(one.partition(1)[0], parts[1][0])
        del segments, one, other, lent, view


def test_what_is_mapped_is_not_given_out_again(own_pool, table_of, mapped):
    part = [np.arange(8.0).reshape(1, 8)]
    with own_pool() as pool:
        segment = Segment(part, pool)
        start = segment.place.start
        rows = mapped(table_of([part]), {0: segment})
        (at,) = starts(rows, [(0, 0)])
        view = rows.columns[0][at : at + 1]
        del segment, rows
        other = Segment([np.zeros((1, 8))], pool)
        assert other.place.start != start
        assert view.tolist() == [list(range(8))], "though its descriptor is closed"
        del view
        assert Segment(part, pool).place.start == start
        del other


def test_nothing_stays_mapped(own_pool, table_of, mapped):
    def count() -> int:
        return sum("dask-train" in line for line in Path("/proc/self/maps").read_text().splitlines())

    part = [np.arange(8.0), np.ones((8, 3))]
    before = count()
    files = len(os.listdir("/proc/self/fd"))
    with own_pool() as pool:
        rows = mapped(table_of([part]), {0: Segment(part, pool)})
        view, other = (
            column[start : start + 8]
            for column, (start,) in zip(rows.columns, rows.starts(np.zeros(8, np.int64), np.arange(8), 8), strict=True)
        )
        assert count() == before + 2
        del rows, other
        assert count() == before + 1, "a view keeps its column"
        assert view.tolist() == list(range(8))
        del view
        assert count() == before
    assert len(os.listdir("/proc/self/fd")) == files


def test_columns_of_nothing(table_of, mapped):
    table = table_of([[np.zeros((0, 3)), np.zeros(0, "f4")], [np.zeros((5, 3)), np.zeros(5, "f4")]])
    rows = mapped(table, {})
    assert [column.shape for column in rows.columns] == [(0, 3), (0,)]
    assert (rows.is_here(np.array([0, 1])).tolist(), rows.all_here) == ([True, False], False)


def test_a_file_that_can_not_be_mapped(own_pool, table_of):
    part = [np.arange(8.0)]
    with own_pool() as pool:
        segment = Segment(part, pool)
        table = table_of([part])
        held = held_by([(0, 0, segment.place)], 1)
        del segment
    with pytest.raises(OSError, match=r"64 bytes of address space can't be mapped: Bad file descriptor"):
        Rows(table.schema, table.lengths, held, [10_000])


def test_partitions_are_told_in_their_order():
    place = SegmentPlace(pid=1, descriptor=2, inode=3, start=0, stop=100, offsets=(0, 64))
    held = held_by([(7, 1, place), (2, 0, replace(place, stop=300, offsets=(128, 256)))], 2)
    assert held.stop.tolist() == [300, 100]
    assert (held.partition.tolist(), held.file.tolist()) == ([2, 7], [0, 1])
    assert held.offsets.tolist() == [[128, 256], [0, 64]]
    assert held_by([], 3).offsets.shape == (0, 3)
