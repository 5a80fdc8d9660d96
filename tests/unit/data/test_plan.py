"""The order of an epoch: every row once, drawn evenly, the same from anywhere."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_train.data import plan as plan_module
from dask_train.data.permutation import permuted
from dask_train.data.plan import EpochPlan

LENGTHS = st.lists(st.integers(0, 40), max_size=12)
SHUFFLE = st.sampled_from([True, False, "partition"])
GROUP = st.none() | st.integers(1, 5)


def numbered(plan: EpochPlan, start: int = 0) -> list[int]:
    offsets = np.cumsum(plan.lengths) - plan.lengths
    return [int(row) for partition, rows in plan.stretches(start) for row in offsets[partition] + rows]


def plan_of(lengths: list[int], shuffle: object, seed: int = 0, epoch: int = 0, window: int | None = None) -> EpochPlan:
    return EpochPlan(lengths=np.array(lengths, np.int64), shuffle=shuffle, seed=seed, epoch=epoch, window=window)


@given(LENGTHS, SHUFFLE, st.integers(0, 2**70), st.integers(0, 9), GROUP, st.integers(1, 64))
def test_every_row_once_and_the_same_from_anywhere_on(lengths, shuffle, seed, epoch, window, window_rows):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan_module, "WINDOW_ROWS", window_rows)
        plan = plan_of(lengths, shuffle, seed, epoch, window)
        order = numbered(plan)
        assert sorted(order) == list(range(sum(lengths)))
        for start in {1, len(order) // 2, len(order), len(order) + 7}:
            assert numbered(plan, start) == order[start:]


@given(LENGTHS.filter(any), st.integers(0, 5), GROUP, st.integers(1, 200))
def test_each_partition_gives_its_due_to_any_beginning_of_its_group(lengths, seed, window, position):
    plan = plan_of(lengths, True, seed, window=window)
    order = np.concatenate([partition for partition, _ in plan.stretches()])
    for group in plan.groups():
        sizes = plan.lengths[group]
        partitions = order[np.isin(order, group)][:position]
        given_by_each = np.bincount(partitions, minlength=len(lengths))[group]
        due = sizes * len(partitions) / max(1, sizes.sum())
        # One row for its own phase, and as much for where the whole is in time.
        assert (np.abs(given_by_each - due) <= 1 + sizes * len(sizes) / max(1, sizes.sum())).all()


@given(LENGTHS, SHUFFLE, st.integers(0, 5), st.integers(1, 15))
def test_an_epoch_goes_through_one_group_after_the_other(lengths, shuffle, seed, window):
    plan = plan_of(lengths, shuffle, seed, window=window)
    groups = plan.groups()
    assert sorted(np.concatenate([*groups, []]).tolist()) == list(range(len(lengths)))
    assert [len(group) for group in groups[:-1]] == [window] * (len(groups) - 1)
    assert all(1 <= len(group) <= window for group in groups)
    for number, group in enumerate(groups):
        assert (plan.group_of_partition[group] == number).all()
    order = [int(number) for partition, _ in plan.stretches() for number in plan.group_of_partition[partition]]
    assert order == sorted(order)


@given(LENGTHS, st.sampled_from([False, "partition"]), st.integers(0, 5), st.integers(1, 5))
def test_partitions_that_come_one_by_one_come_so_in_any_groups(lengths, shuffle, seed, window):
    assert numbered(plan_of(lengths, shuffle, seed, window=window)) == numbered(plan_of(lengths, shuffle, seed))


def test_groups_are_of_other_partitions_each_epoch_unless_nothing_is_shuffled():
    def groups(shuffle: object, epoch: int) -> set[tuple[int, ...]]:
        return {tuple(sorted(group.tolist())) for group in plan_of([3] * 40, shuffle, epoch=epoch, window=4).groups()}

    for shuffle in (True, "partition"):
        assert len(groups(shuffle, 0) | groups(shuffle, 1)) > 15
        assert groups(shuffle, 1) == groups(shuffle, 1)
    assert groups(False, 0) == groups(False, 1) == {tuple(range(first, first + 4)) for first in range(0, 40, 4)}
    (one,) = plan_of([3] * 40, True).groups()
    assert sorted(one.tolist()) == list(range(40))


def test_a_partition_is_finished_before_the_next_one_begins():
    plan = plan_of([5, 7, 0, 3], "partition", seed=1)
    ((partition, row),) = plan.stretches()
    runs = partition[np.concatenate([[True], partition[1:] != partition[:-1]])]
    assert sorted(runs.tolist()) == [0, 1, 3]
    assert row[partition == 1].tolist() != sorted(row[partition == 1].tolist())


def test_orders_differ_by_seed_and_epoch_and_repeat():
    def order(seed: int, epoch: int, window: int | None) -> tuple[int, ...]:
        return tuple(numbered(plan_of([50, 50], True, seed, epoch, window)))

    assert len({order(seed, epoch, window) for seed in range(3) for epoch in range(3) for window in (1, 2)}) == 18
    assert order(1, 2, None) == order(1, 2, None) == order(1, 2, 2)


def test_partitions_of_one_length_have_orders_of_their_own():
    plan = plan_of([30] * 6, True, window=2)
    partition, row = (np.concatenate(parts) for parts in zip(*plan.stretches(), strict=True))
    assert len({tuple(row[partition == number].tolist()) for number in range(6)}) == 6


@given(st.lists(st.tuples(st.integers(1, 300), st.integers(0, 2**64 - 1)), min_size=1, max_size=5))
def test_a_permutation_takes_each_place_once(partitions):
    index = np.concatenate([np.arange(n) for n, _ in partitions])
    length = np.concatenate([np.full(n, n) for n, _ in partitions])
    key = np.concatenate([np.full(n, k, np.uint64) for n, k in partitions])
    found = np.split(permuted(index, length, key), np.cumsum([n for n, _ in partitions])[:-1])
    assert [sorted(part.tolist()) for part in found] == [list(range(n)) for n, _ in partitions]


def test_a_permutation_mixes():
    n = 20_000
    found = permuted(np.arange(n), np.full(n, n), np.full(n, 7, np.uint64))
    assert abs(np.corrcoef(found, np.arange(n))[0, 1]) < 0.03
    assert abs(np.corrcoef(found[1:], found[:-1])[0, 1]) < 0.03
    assert abs((found[1:] > found[:-1]).mean() - 0.5) < 0.02
