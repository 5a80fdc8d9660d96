"""Which rows form which batch."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_train.data.order import shares

ROWS, BATCH, SIZE = st.integers(1, 60), st.integers(1, 25), st.integers(1, 7)
SEED, EPOCH = st.integers(0, 3), st.integers(0, 3)


def rows_of(num_rows: int, rank: int, **settings: object) -> list[tuple[list[int], int]]:
    everything = np.arange(num_rows)
    lengths = [num_rows // 3, 0, num_rows - num_rows // 3]
    return [(everything[rows].tolist(), total) for rows, total in shares(lengths, rank=rank, **settings)]


@given(ROWS, BATCH, SIZE, st.sampled_from([True, False, "partition"]), SEED, EPOCH)
def test_an_epoch_is_every_row_once(num_rows, batch_size, size, shuffle, seed, epoch):
    settings = {"batch_size": batch_size, "shuffle": shuffle, "seed": seed, "epoch": epoch}
    ranks = [rows_of(num_rows, rank, size=size, **settings) for rank in range(size)]
    alone = rows_of(num_rows, 0, size=1, **settings)
    seen = []
    for batch, (whole, total) in enumerate(alone):
        parts = [ranks[rank][batch] for rank in range(size)]
        assert {part_total for _, part_total in parts} == {total} == {len(whole)}
        assert sum((rows for rows, _ in parts), []) == whole, "the same global batch for any number of ranks"
        lengths = [len(rows) for rows, _ in parts]
        assert max(lengths) - min(lengths) <= 1
        assert min(lengths) > 0 or total < size
        assert total == batch_size or batch == len(alone) - 1
        seen += whole
    assert {len(rank) for rank in ranks} == {len(alone)}
    assert sorted(seen) == list(range(num_rows))
    assert shuffle or seen == sorted(seen)
    later = rows_of(num_rows, 0, size=1, first=len(alone) // 2, **settings)
    assert later == alone[len(alone) // 2 :], "the same from the middle on"


def test_each_epoch_and_each_seed_has_an_order_of_its_own():
    def order(seed: int, epoch: int) -> list[int]:
        ((rows, _),) = rows_of(100, 0, size=1, batch_size=100, shuffle=True, seed=seed, epoch=epoch)
        return rows

    orders = [tuple(order(seed, epoch)) for seed in range(3) for epoch in range(3)]
    assert len(set(orders)) == 9
    assert tuple(order(1, 2)) == orders[5], "and the same again"


@pytest.mark.parametrize("shuffle", [True, False])
def test_rows_in_order_are_a_slice_and_shuffled_ones_an_index(shuffle):
    (rows, _), *_ = shares([7, 3], batch_size=4, rank=0, size=2, shuffle=shuffle, seed=0, epoch=0)
    assert isinstance(rows, np.ndarray if shuffle else slice)
    assert not shuffle or rows.dtype == np.int64
