"""All rows of a data set by their numbers: those here, those on other hosts, and who goes through all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dask_train.data.batches import Reader
from dask_train.data.buffers import Buffers
from dask_train.data.segment import Segment
from dask_train.errors import DataError
from dask_train.role import rows_by_number
from dask_train.role.rows_by_number import RowsByNumber

PARTS = [[np.arange(10, 50)], [np.arange(0)], [np.arange(50, 130)]]


@pytest.fixture
def opened(pool, table_of, mapped) -> Callable[..., Any]:
    """All rows, of which some partitions are mapped here; those of others are noted, and brought."""

    def opened(*here: int) -> tuple[RowsByNumber, list[tuple[list[int], list[int]]], list[bool]]:
        table = table_of(PARTS)
        rows = mapped(table, {number: Segment(PARTS[number]) for number in here})
        asked: list[tuple[list[int], list[int]]] = []
        told: list[bool] = []

        def fetch(partition: np.ndarray, row: np.ndarray) -> list[np.ndarray]:
            asked.append((partition.tolist(), row.tolist()))
            return [np.array([PARTS[p][0][r] for p, r in zip(partition, row, strict=True)])]

        reader = Reader(fetch, Buffers(), None)
        return RowsByNumber(table, rows, reader, lambda values: values, lambda: told.append(True)), asked, told

    return opened


def test_rows_of_any_partition_in_any_order(opened):
    rows, asked, _ = opened(0, 1, 2)
    numbers = np.array([119, 0, 40, 39, 40])
    assert len(rows) == 120
    assert rows.take(numbers)[0].tolist() == [129, 10, 50, 49, 50]
    assert asked == []


def test_rows_of_one_partition_are_lent_for_a_while(opened):
    rows, asked, _ = opened(0, 1)
    with rows.lent(1, 2) as found:
        (view,) = found
        assert view.tolist() == [11, 12]
        view[:] = 0
        assert rows.take(np.array([0, 1]))[0].tolist() == [10, 0], "it is no copy"
    assert rows.take(np.array([0, 1]))[0].tolist() == [10, 11]
    ends = rows._ends.tolist()
    for first, num_rows in ((ends[0] - 1, 2), (ends[1], 1), (0, 0)):
        with rows.lent(first, num_rows) as found:
            assert found is None, "of two partitions, elsewhere, none"
    assert asked == []


def test_rows_that_lie_elsewhere_are_brought_to_the_role_s_own_process_only(opened, monkeypatch):
    rows, asked, _ = opened(0, 1)
    assert rows.take(np.array([40, 1, 119]))[0].tolist() == [50, 11, 129]
    assert asked == [([2, 2], [0, 79])]
    another = rows._pid + 1
    monkeypatch.setattr(rows_by_number.os, "getpid", lambda: another)
    assert rows.take(np.array([1]))[0].tolist() == [11]
    with pytest.raises(DataError, match="no worker process of a DataLoader"):
        rows.take(np.array([40]))


@pytest.mark.parametrize(
    ("epochs", "told"),
    [
        ([range(120)], [True]),
        ([reversed(range(120)), range(120)], [True]),
        ([range(0, 120, 2)] * 3, []),
        ([range(0, 120, 2), range(60), range(60, 120)], []),
    ],
)
def test_who_goes_through_all_rows_is_seen_once(opened, epochs, told):
    rows, _, seen = opened(0, 1, 2)
    for epoch in epochs:
        for batch in np.array_split(np.array(list(epoch)), 7):
            rows.take(batch)
    assert seen == told
