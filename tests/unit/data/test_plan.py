"""The order of an epoch: every row once, drawn evenly, the same from anywhere."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_train.data import plan as plan_module
from dask_train.data.permutation import permuted
from dask_train.data.plan import EpochPlan, global_batches

LENGTHS = st.lists(st.integers(0, 40), min_size=1, max_size=12)
SHUFFLE = st.sampled_from([True, False, "partition"])


def numbered(plan: EpochPlan, batch_size: int, first: int = 0) -> list[list[int]]:
    offsets = np.cumsum(plan.lengths) - plan.lengths
    return [(offsets[partition] + row).tolist() for partition, row in global_batches(plan, batch_size, first)]


@given(LENGTHS, SHUFFLE, st.integers(0, 2**70), st.integers(0, 9), st.integers(1, 50), st.integers(1, 64))
def test_every_row_once_and_the_same_from_any_batch_on(lengths, shuffle, seed, epoch, batch_size, window):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan_module, "WINDOW_ROWS", window)
        plan = EpochPlan(lengths=np.array(lengths), shuffle=shuffle, seed=seed, epoch=epoch)
        batches = numbered(plan, batch_size)
        assert sorted(sum(batches, [])) == list(range(sum(lengths)))
        assert {len(batch) for batch in batches[:-1]} <= {batch_size}
        for first in {0, len(batches) // 2, len(batches)}:
            assert numbered(plan, batch_size, first) == batches[first:]


@given(LENGTHS, st.integers(0, 5), st.integers(1, 200))
def test_each_partition_gives_its_due_to_any_beginning(lengths, seed, position):
    plan = EpochPlan(lengths=np.array(lengths), shuffle=True, seed=seed, epoch=0)
    if not plan.num_rows:
        return
    partitions = np.concatenate([partition for partition, _ in plan.stretches()])[:position]
    given_by_each = np.bincount(partitions, minlength=len(lengths))
    due = np.array(lengths) * len(partitions) / plan.num_rows
    # One row for its own phase, and as much for where the whole is in time.
    assert (np.abs(given_by_each - due) <= 1 + np.array(lengths) * len(lengths) / plan.num_rows).all()


def test_a_partition_is_finished_before_the_next_one_begins():
    plan = EpochPlan(lengths=np.array([5, 7, 0, 3]), shuffle="partition", seed=1, epoch=0)
    ((partition, row),) = plan.stretches()
    runs = partition[np.concatenate([[True], partition[1:] != partition[:-1]])]
    assert sorted(runs.tolist()) == [0, 1, 3]
    assert row[partition == 1].tolist() != sorted(row[partition == 1].tolist())


def test_orders_differ_by_seed_and_epoch_and_repeat():
    def order(seed: int, epoch: int) -> tuple[int, ...]:
        return tuple(sum(numbered(EpochPlan(lengths=np.array([50, 50]), shuffle=True, seed=seed, epoch=epoch), 32), []))

    assert len({order(seed, epoch) for seed in range(3) for epoch in range(3)}) == 9
    assert order(1, 2) == order(1, 2)


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
