"""Rows of all ranks come in the order of the ranks, whatever their dtypes and numbers."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from dask_train.collectives.row_gathering import RowGathering
from dask_train.collectives.shared_memory import SumBuffer

ROWS = [3, 0, 5]
# In some turns the rows of all ranks fit in their letters, in others those of some do not.
WIDTHS = [3, 3, 500, 9000, 3, 9000, 9000]


def columns(rank: int, turn: int) -> list[np.ndarray]:
    random = np.random.default_rng(10 * turn + rank)
    rows = ROWS[(rank + turn) % 3]
    return [
        random.normal(size=(rows, 2, WIDTHS[turn])),
        random.integers(0, 9, rows).astype("i2"),
        random.random((rows, 1)) > 0.5,
        np.asfortranarray(random.normal(size=(rows, 4)).astype("f4")),
    ]


def test_rows_come_in_the_order_of_the_ranks(on_each_rank):
    def gathered(_, group):
        gathering = RowGathering(group)
        return [gathering(columns(group.rank, turn)) for turn in range(len(WIDTHS))]

    everyones = on_each_rank(gathered, 3)
    for turn in range(len(WIDTHS)):
        wanted = [np.concatenate(parts) for parts in zip(*(columns(rank, turn) for rank in range(3)), strict=True)]
        for rank, found in enumerate(everyones):
            for array, mine, own in zip(found[turn].arrays, wanted, columns(rank, turn), strict=True):
                np.testing.assert_array_equal(array, mine)
                assert array.dtype == mine.dtype
                np.testing.assert_array_equal(array[found[turn].own], own)


def test_all_ranks_are_told_of_other_shapes(on_each_rank):
    def gathered(rank, group):
        with pytest.raises(ValueError, match="those of another worker's are of other shapes or dtypes"):
            RowGathering(group)([np.zeros((2, 3 + rank % 2))])
        return True

    assert on_each_rank(gathered, 3) == [True] * 3


def test_small_arrays_take_one_exchange(on_each_rank):
    def exchanges(_, group):
        told, exchange = [], group.exchange
        group.exchange = lambda channel, *more: (told.append(channel), exchange(channel, *more))[1]
        gathering = RowGathering(group)
        for width in (3, 9000):
            gathering([np.zeros((2, width))])
            told.append("done")
        return [one == "done" for one in told]

    assert on_each_rank(exchanges, 2) == [[False, True, False, False, True]] * 2


def test_letters_have_room_for_as_many_ranks_as_there_are_now():
    group = SimpleNamespace(rank=0, channel=SumBuffer)

    def exchange(channel, mine, places):
        assert channel.shapes == [(len(mine) * len(places),)]
        return [np.tile(mine, len(places))]

    group.exchange = exchange
    gathering = RowGathering(group)
    for group.size in (2, 3, 2):
        (found,), _ = gathering([np.arange(4.0)])
        np.testing.assert_array_equal(found, np.tile(np.arange(4.0), group.size))
