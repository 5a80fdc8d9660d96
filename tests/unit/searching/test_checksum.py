"""The checksum of rows knows values and their places, and not how they are cut."""

from __future__ import annotations

import numpy as np
import pytest

from dask_train.searching.place import checksum_of_part

RANDOM = np.random.default_rng(0)
WORDS = np.array([f"word {number}" for number in range(20)], object)
COLUMNS = [
    RANDOM.normal(size=(20, 3)),
    RANDOM.normal(size=20).astype("f4"),
    RANDOM.integers(0, 2, 20).astype(bool),
    RANDOM.normal(size=(20, 2)) + 1j,
    WORDS,
]


def in_parts(columns, *ends):
    starts = (0, *ends)
    parts = zip(starts, (*ends, 20), strict=True)
    return sum(checksum_of_part([each[start:end] for each in columns], start) for start, end in parts) % 2**64


def test_it_is_the_same_however_rows_are_cut():
    whole = in_parts(COLUMNS)
    assert whole == in_parts(COLUMNS, 3, 3, 11) == in_parts([each.copy() for each in COLUMNS], 19)


@pytest.mark.parametrize("number", range(len(COLUMNS)))
def test_it_changes_with_a_value_and_with_the_order(number):
    whole = in_parts(COLUMNS)
    changed = [each.copy() for each in COLUMNS]
    changed[number][7] = changed[number][8]
    if (changed[number] != COLUMNS[number]).any():
        assert in_parts(changed) != whole
    turned = [each[::-1] if place == number else each for place, each in enumerate(COLUMNS)]
    assert in_parts(turned) != whole


def test_columns_that_are_exchanged_are_others():
    assert in_parts(COLUMNS[:2]) != in_parts([COLUMNS[1], COLUMNS[0]])


def test_values_that_are_exchanged_in_pairs_are_others():
    rows = np.zeros(20)
    rows[[0, 3]] = 1.0
    exchanged = np.zeros(20)
    exchanged[[1, 2]] = 1.0
    assert in_parts([rows]) != in_parts([exchanged])
