"""Batches over partitions are those that one process takes of all rows."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from dask_train.predicting.server.batches import BatchCounts, counted, joined

CUTS = [
    (103,),
    (0, 3, 1, 0, 40, 59, 0),
    tuple([1] * 103),
    (32, 32, 32, 7),
    (64, 39),
    (31, 1, 71),
    (96, 7, 0),
    (90, 6),
    (0, 64),
]


@pytest.mark.parametrize("fan_in", [2, 16])
@pytest.mark.parametrize("lengths_are_known", [True, False])
@pytest.mark.parametrize("lengths", CUTS)
def test_each_batch_is_counted_once(lengths: tuple[int, ...], lengths_are_known: bool, fan_in: int) -> None:
    seen: list[list[int]] = []

    def count(columns: list[np.ndarray]) -> list[np.ndarray]:
        assert len(columns[0])
        seen.extend(columns[0][start : start + 32].tolist() for start in range(0, len(columns[0]), 32))
        return [np.array([float(columns[0].sum())]), np.array(len(columns[1]))]

    rows = np.arange(sum(lengths))
    ends = np.cumsum([0, *lengths])
    last = max(number for number, length in enumerate(lengths) if length)
    level: list[BatchCounts | None] = []
    for number, (start, end) in enumerate(itertools.pairwise(ends)):
        columns = [rows[start:end], rows[start:end]]
        is_last = number >= last if lengths_are_known else True
        level.append(counted(columns, int(start), 32, count, is_last=is_last))
    while len(level) > 1:
        level = [joined(level[at : at + fan_in], count) for at in range(0, len(level), fan_in)]
    (total,) = level
    assert total is not None
    assert not len(total.head[0])
    tail: Any = total.tail
    batches = [rows[start : start + 32].tolist() for start in range(0, len(rows), 32)]
    assert tail[0].tolist() == batches[-1]
    assert sorted(seen) == batches[:-1]
    if total.counts is not None:
        assert total.counts[0] == sum(map(sum, batches[:-1]))
        assert total.counts[1] == len(rows) - len(batches[-1])


def test_no_rows_count_nothing() -> None:
    assert joined([None, None], lambda _: []) is None
