"""Bags of dicts are frames, a partition each; what is no row of all names is told."""

from __future__ import annotations

import dask
import dask.bag as db
import numpy as np
import pytest

from dask_train.collections.bags import bag_opened

ROWS = [{"a": number, "b": number / 2, "c": np.arange(2) + number, "d": "é", "e": b"x\0"} for number in range(5)]


def frames(rows: list, num_partitions: int) -> list:
    bag = db.from_sequence(rows, npartitions=num_partitions)
    return list(dask.compute(*bag_opened("data", bag), scheduler="synchronous"))


def test_each_partition_is_a_frame():
    found = frames(ROWS, 3)
    assert [len(frame) for frame in found] == [2, 2, 1]
    first = found[0]
    assert (first["a"].tolist(), first["b"].tolist(), first["a"].dtype) == ([0, 1], [0.0, 0.5], np.int64)
    assert [each.tolist() for each in first["c"]] == [[0, 1], [1, 2]]
    assert (first["d"].tolist(), first["e"].tolist()) == (["é"] * 2, [b"x\0"] * 2)


def test_a_partition_without_rows_has_the_names_of_the_first():
    bag = db.from_sequence(ROWS, npartitions=2).filter(lambda row: row["a"] < 2)
    first, second = dask.compute(*bag_opened("data", bag), scheduler="synchronous")
    assert (len(first), len(second), list(second.columns)) == (2, 0, list(ROWS[0]))


def test_other_data_stays_as_it_is():
    assert bag_opened("data", ROWS) is ROWS


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([1, 2], "The first partition of data, a bag, holds a int; rows are dicts"),
        ([{"a": 1}, {"b": 1}], "Row 0 of partition 1 of data, a bag, has 'b', and the first row has 'a'"),
        ([{"a": 1}, {"a": 1, "b": 1}], "Row 0 of partition 1 of data, a bag, has 'a', 'b'"),
        ([{"a": 1}, 3], "Row 0 of partition 1 of data, a bag, has no dict, but a int"),
    ],
)
def test_rows_without_the_names_of_all_are_told(rows, message):
    with pytest.raises(ValueError, match=message):
        frames(rows, 2)


def test_values_that_make_no_column_are_told():
    with pytest.raises(ValueError, match="Values of 'a' in partition 0 of data, a bag, have several shapes"):
        frames([{"a": [1]}, {"a": [1, 2]}], 1)
    with pytest.raises(ValueError, match="Values of 'a' in partition 0 of data, a bag, are text and others"):
        frames([{"a": "1"}, {"a": 1}], 1)
    bag = db.from_sequence([{"a": 1}], npartitions=1).filter(lambda row: row["a"] > 1)
    with pytest.raises(ValueError, match="The first partition of data, a bag, has no row"):
        dask.compute(*bag_opened("data", bag), scheduler="synchronous")


@pytest.mark.parametrize("large", [2**60 + 1, -(2**60) - 1, np.int64(2**60 + 1), [2**60 + 1], np.array([2**60 + 1])])
def test_whole_numbers_that_floats_would_round_are_refused(large):
    other = np.nan if np.ndim(large) == 0 else [np.nan]
    with pytest.raises(ValueError, match="Values of 'a' in partition 0 of data, a bag, are whole numbers beside"):
        frames([{"a": large}, {"a": other}], 1)
    kept = frames([{"a": large}, {"a": large}], 1)[0]["a"].iloc[1]
    assert np.array_equal(kept, large)


@pytest.mark.parametrize(
    "exact",
    [2**53, -(2**53), 2**60, float(2**60), np.uint8(3), np.float16(3), [2**60], [-np.inf], np.array([2.0**60]), True],
)
def test_numbers_that_floats_hold_may_stand_beside_floats(exact):
    other = np.nan if np.ndim(exact) == 0 else [np.nan]
    assert frames([{"a": exact}, {"a": other}], 1)[0]["a"].iloc[0] == exact
