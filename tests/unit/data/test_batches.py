"""One rank's batches: the rows of the plan, from here and from elsewhere, in memory that is used again."""

from __future__ import annotations

from contextlib import ExitStack, closing

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_train.data import batches as batches_module
from dask_train.data.batches import BUNDLE, MAX_AHEAD, Reader
from dask_train.data.buffers import Buffers
from dask_train.data.order import shares
from dask_train.data.plan import EpochPlan
from dask_train.data.segment import Segment
from dask_train.errors import DataError


def numbered(*lengths: int) -> list[list[np.ndarray]]:
    """Partitions whose rows, of 64 bytes, are numbered through, with another column of their negatives."""
    parts, first = [], 0
    for length in lengths:
        number = np.arange(first, first + length)
        parts.append([np.repeat(number[:, None], 8, axis=1), -number.astype("f4")])
        first += length
    return parts


def order(lengths, *, rank: int = 0, size: int = 1, batch_size: int = 4, shuffle=True):
    plan = EpochPlan(lengths=np.array(lengths), shuffle=shuffle, seed=3, epoch=1)
    return shares(plan, batch_size=batch_size, rank=rank, size=size)


def each(order):
    """The shares of one batch at a time."""
    return [some[number : number + 1] for some in order for number in range(len(some))]


def no_fetch(partition, row):
    raise AssertionError("all rows are here")


class Elsewhere:
    """Gives rows that are not here, and keeps what it was asked for."""

    def __init__(self, parts) -> None:
        self.parts, self.asked = parts, []

    def __call__(self, partition, row):
        self.asked.append((partition.tolist(), row.tolist()))
        columns = zip(*self.parts, strict=True)
        return [np.stack([column[p][r] for p, r in zip(partition, row, strict=True)]) for column in columns]


@given(
    st.lists(st.tuples(st.integers(0, 12), st.booleans()), min_size=1, max_size=6),
    st.integers(1, 3),
    st.integers(1, 9),
    st.sampled_from([True, False, "partition"]),
    st.sampled_from([None, "read-only", "writable"]),
)
@settings(deadline=None)
def test_batches_are_the_rows_of_the_plan(own_pool, table_of, mapped, partitions, size, batch_size, shuffle, views):
    lengths, here = zip(*partitions, strict=True)
    parts = numbered(*lengths)
    first = np.cumsum(lengths) - lengths
    with own_pool() as pool:
        segments = {number: Segment(part, pool) for number, part in enumerate(parts) if here[number]}
        rows = mapped(table_of(parts), segments)
        for rank in range(size):
            its_order = list(order(lengths, rank=rank, size=size, batch_size=batch_size, shuffle=shuffle))
            fetch = Elsewhere(parts)
            batches = list(Reader(fetch, Buffers(), views).read(iter(its_order), rows, in_order=shuffle is False))
            assert len(batches) == len(each(its_order))
            for batch, share in zip(batches, each(its_order), strict=True):
                expected = first[share.partition] + share.row
                assert batch.global_rows == share.global_rows
                assert all(array.flags.c_contiguous for array in batch.arrays)
                x, y = batch.arrays
                assert (x.shape, x.dtype, y.dtype) == ((len(expected), 8), np.int64, np.float32)
                assert x[:, 0].tolist() == x[:, 7].tolist() == (-y).tolist() == expected.tolist()
            asked = [pair for partition, row in fetch.asked for pair in zip(partition, row, strict=True)]
            away = [
                (p, r)
                for share in each(its_order)
                for p, r in zip(share.partition.tolist(), share.row.tolist(), strict=True)
                if not here[p]
            ]
            assert asked == away, "each row that is not here once, in the order of the plan"
            assert len(fetch.asked) <= 7 + len(batches) // BUNDLE, "a bundle at once, the first ones smaller"
        segments, rows, batches, batch, x, y = {}, None, [], None, None, None


@pytest.fixture
def rows(own_pool, table_of, mapped):
    """100 rows, all here: in a list, which is emptied in the end."""
    with ExitStack() as stack:
        pool = stack.enter_context(own_pool())
        held = [mapped(table_of(numbered(100)), {0: Segment(numbered(100)[0], pool)})]
        yield held
        held.clear()


@pytest.mark.parametrize("views", ["read-only", "writable"])
def test_rows_that_follow_each_other_are_not_copied(rows, views):
    reader = Reader(no_fetch, Buffers(), views)
    for number, batch in enumerate(reader.read(order([100], batch_size=32, shuffle=False), rows[0], in_order=True)):
        for array, column in zip(batch.arrays, rows[0].columns, strict=True):
            assert np.shares_memory(array, column)
            assert array.flags.writeable == (views == "writable")
        if views == "writable":
            batch.arrays[0][:] = number
    if views == "writable":
        again = reader.read(order([100], batch_size=32, shuffle=False), rows[0], in_order=True)
        again = [batch.arrays[0].min() for batch in again]
        assert again == [0, 1, 2, 3], "as it said: it reads its own changes later"


@pytest.mark.parametrize(("views", "shuffle"), [(None, False), (None, True), ("read-only", True)])
def test_what_is_copied_is_the_readers_own(rows, views, shuffle):
    for _ in range(2):
        reader = Reader(no_fetch, Buffers(), views)
        seen = []
        for batch in reader.read(order([100], batch_size=32, shuffle=shuffle), rows[0], in_order=not shuffle):
            seen += batch.arrays[0][:, 0].tolist()
            for array in batch.arrays:
                array[...] = -1
        assert sorted(seen) == list(range(100))


def test_memory_is_used_again_and_never_too_early(rows):
    reader = Reader(no_fetch, Buffers(), "read-only")
    addresses, held = set(), []
    for _ in range(10):
        for batch in reader.read(order([100], batch_size=5), rows[0]):
            addresses.add(batch.arrays[0].ctypes.data)
            held = [*held[-2:], (batch.arrays[0], batch.arrays[0].copy())]
            for array, copy in held:
                np.testing.assert_array_equal(array, copy)
    assert len(addresses) <= BUNDLE * (MAX_AHEAD + 8)


def test_it_ends_when_it_is_closed(rows, no_leaks):
    with no_leaks():
        for number in range(3):
            with closing(Reader(no_fetch, Buffers(), None).read(order([100]), rows[0])) as batches:
                for _ in range(number):
                    next(batches)


def test_nothing_to_read(rows, no_leaks):
    with no_leaks():
        assert list(Reader(no_fetch, Buffers(), None).read(iter([]), rows[0])) == []


def test_a_rank_whose_share_of_a_batch_is_empty(rows):
    for rank in range(3):
        batches = list(
            Reader(no_fetch, Buffers(), "read-only").read(order([100], rank=rank, size=3, batch_size=33), rows[0])
        )
        assert [len(batch.arrays[0]) for batch in batches] == [11, 11, 11, int(rank == 2)]
        assert batches[-1].arrays[0].shape == (int(rank == 2), 8)


def test_large_batches_are_not_prepared_far_ahead(rows, monkeypatch, wait_for):
    made = []
    monkeypatch.setattr(batches_module, "BUNDLE_BYTES", 10)
    monkeypatch.setattr(batches_module, "MAX_AHEAD_BYTES", 10 * 68)
    reader = Reader(no_fetch, Buffers(made.append), None)
    with closing(reader.read(order([100], batch_size=10), rows[0])) as batches:
        held = [next(batches)]
        wait_for(lambda: len(made) == 2 * 3, "one is read, one waits, one is in hand")
        held.append(next(batches))
        wait_for(lambda: len(made) == 2 * 4, "one more")
    del held


def test_small_batches_come_in_bundles_the_first_alone(rows, wait_for):
    made = []
    reader = Reader(no_fetch, Buffers(made.append), None)
    with closing(reader.read(order([100], batch_size=2), rows[0])) as batches:
        first = next(batches)
        wait_for(lambda: len(made) == 2 * 4, "one is read, two wait, one is in hand")
        sizes = [size // 64 for size in made[::2]]
        assert sizes == [2 * 1, 2 * 2, 2 * 4, 2 * 8], sizes
    del first


def test_rows_that_do_not_come_are_an_error_at_their_place(own_pool, table_of, mapped, no_leaks):
    def fetch(partition, row):
        raise DataError("They did not come.")

    parts = numbered(8 * 8, 8 * BUNDLE)
    with no_leaks(), own_pool() as pool:
        rows = mapped(table_of(parts), {0: Segment(parts[0], pool)})
        plan = order([8 * 8, 8 * BUNDLE], batch_size=8, shuffle=False)
        batches = Reader(fetch, Buffers(), "read-only").read(plan, rows)
        assert [next(batches).arrays[0][0, 0] for _ in range(7)] == list(range(0, 7 * 8, 8)), "bundles of 1, 2 and 4"
        with pytest.raises(DataError, match="They did not come"):
            next(batches)
        del rows, batches
