"""What partitions' tasks have found is joined, in order."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest

from dask_train.predicting import over_partitions


@pytest.mark.parametrize("count", [1, 2, 16, 17, 300])
def test_all_are_joined_in_order_some_at_a_time(count: int) -> None:
    sizes: list[int] = []

    def join(some: list[list[int]]) -> list[int]:
        sizes.append(len(some))
        return sum(some, [])

    assert over_partitions.joined(join, [[number] for number in range(count)]) == list(range(count))
    assert max(sizes) <= over_partitions.FAN_IN


def test_lengths_of_arrays_where_they_are_known() -> None:
    known = da.zeros((10, 2), chunks=((3, 7), 2))
    assert over_partitions.lengths_of(known, 2) == [3, 7]
    assert over_partitions.lengths_of(known, 1) is None, "it was cut otherwise"
    assert over_partitions.lengths_of(known[known[:, 0] > 0], 2) is None
    assert over_partitions.lengths_of(np.zeros((3, 2)), 1) is None
