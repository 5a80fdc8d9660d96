"""A data set that comes in groups: its rows are those of plain arrays, and no more groups are open than are read."""

from __future__ import annotations

import weakref

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_train.data.batches import Reader
from dask_train.data.buffers import Buffers
from dask_train.data.order import shares
from dask_train.data.plan import EpochPlan
from dask_train.data.segment import Segment
from dask_train.data.streamed import StreamedRows


class Groups:
    """Opens the groups of an epoch as an agent would, and keeps what it was asked for."""

    def __init__(self, plan, parts, table, mapped, pool) -> None:
        self.plan, self.parts, self.table, self.mapped, self.pool = plan, parts, table, mapped, pool
        self.asked: list[tuple[int, int]] = []
        self.open: dict[int, weakref.ref] = {}

    def __call__(self, group: int, needed_from: int):
        self.asked.append((group, needed_from))
        mine = [number for number in self.plan.groups()[group].tolist() if self.table.owner[number] == 0]
        rows = self.mapped(self.table, {number: Segment(self.parts[number], self.pool) for number in mine})
        assert [number for number, its in self.open.items() if number < needed_from and its() is not None] == []
        self.open[group] = weakref.ref(rows)
        return rows


def numbered(lengths: list[int]) -> list[list[np.ndarray]]:
    ends = np.cumsum(lengths)
    return [
        [np.arange(end - length, end), np.arange(end - length, end)[:, None] * np.ones(3, "f4")]
        for length, end in zip(lengths, ends, strict=True)
    ]


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=8).filter(any),
    st.integers(1, 4),
    st.integers(1, 12),
    st.sampled_from([True, False, "partition"]),
    st.lists(st.integers(0, 1), min_size=8, max_size=8),
    st.integers(0, 3),
)
@settings(deadline=None)
def test_an_epoch_has_the_rows_of_its_order(
    own_pool, table_of, mapped, lengths, window, batch_size, shuffle, owner, seed
):
    parts = numbered(lengths)
    first = np.cumsum(lengths) - lengths
    table = table_of(parts, owner=np.array(owner[: len(parts)]), host_of_rank=np.array([0, 1, 0]), window=window)
    plan = EpochPlan(lengths=table.lengths, shuffle=shuffle, seed=seed, epoch=0, window=window)
    its_order = list(
        shares(plan, batch_size=batch_size, rank=2, size=3, owner=table.owner, host_of_rank=table.host_of_rank)
    )

    def fetch(partition, row):
        assert (table.owner[partition] == 1).all()
        return [np.stack([parts[p][c][r] for p, r in zip(partition, row, strict=True)]) for c in range(2)]

    with own_pool() as pool:
        groups = Groups(plan, parts, table, mapped, pool)
        rows = StreamedRows(table, plan, 2, groups)
        batches = list(Reader(fetch, Buffers(), "read-only").read(iter(its_order), rows))
        each = [some[number : number + 1] for some in its_order for number in range(len(some))]
        for batch, share in zip(batches, each, strict=True):
            x, y = batch.arrays
            assert x.tolist() == (first[share.partition] + share.row).tolist()
            assert (y == x[:, None]).all()
            assert y.shape == (len(x), 3)
        asked = [group for group, _ in groups.asked]
        assert asked == sorted(set(asked)), "each once, in order"
        assert all(needed_from <= group for group, needed_from in groups.asked)
        del rows, batches, batch, x, y


def test_groups_that_are_behind_are_let_go(own_pool, table_of, mapped):
    parts = numbered([4, 4, 4, 4, 4])
    table = table_of(parts, window=2)
    plan = EpochPlan(lengths=table.lengths, shuffle=False, seed=0, epoch=0, window=2)
    with own_pool() as pool:
        groups = Groups(plan, parts, table, mapped, pool)
        rows = StreamedRows(table, plan, 0, groups)

        def is_open() -> list[int]:
            return [number for number, its in groups.open.items() if its() is not None]

        rows.turn_to(0, 0)
        rows.turn_to(0, 0)
        assert (groups.asked, is_open()) == ([(0, 0)], [0])
        rows.turn_to(0, 1)
        assert (groups.asked[1:], is_open()) == ([(1, 0)], [0, 1])
        out = [np.zeros(3, np.int64), np.zeros((3, 3), "f4")]
        rows.take(np.array([2, 1, 3]), np.array([0, 3, 1]), out)
        assert out[0].tolist() == out[1][:, 2].tolist() == [8, 7, 13]
        rows.turn_to(2, 2)
        assert (groups.asked[2:], is_open()) == ([(2, 2)], [2])
        del rows


def test_groups_without_rows_are_not_opened(own_pool, table_of, mapped):
    parts = numbered([0, 1, 0, 2])
    table = table_of(parts, window=1)
    plan = EpochPlan(lengths=table.lengths, shuffle=False, seed=0, epoch=0, window=1)
    with own_pool() as pool:
        groups = Groups(plan, parts, table, mapped, pool)
        rows = StreamedRows(table, plan, 0, groups)
        rows.turn_to(1, 3)
        assert groups.asked == [(1, 1), (3, 1)]
        assert rows.schema == table.schema
        del rows


@pytest.mark.parametrize("rank", [0, 1])
def test_ranks_go_through_the_same_groups_also_without_rows(own_pool, table_of, mapped, rank):
    """Rank 0 has no row of the last group, and a rank that stopped before it would hold up the other for ever."""
    parts = numbered([7, 7, 7, 7, 2])
    table = table_of(parts, host_of_rank=np.array([0, 0]), window=2)
    plan = EpochPlan(lengths=table.lengths, shuffle=False, seed=0, epoch=0, window=2)
    order = shares(plan, batch_size=8, rank=rank, size=2)
    with own_pool() as pool:
        groups = Groups(plan, parts, table, mapped, pool)
        sizes = [
            len(batch.arrays[0])
            for batch in Reader(None, Buffers(), None).read(order, StreamedRows(table, plan, rank, groups))
        ]
        assert sizes == [4, 4, 4, 3]
        assert groups.asked == [(0, 0), (1, 0), (2, 1)]
