"""The first row that can be decoded shows what rows are."""

from __future__ import annotations

import numpy as np
import pytest

import dask_train as dt
from dask_train.file_rows import first_row as first_row_module
from dask_train.file_rows.first_row import augmented, first_row

SOME = {"what": "record", "where": "'a.tar'"}


def decode(content: bytes) -> np.ndarray:
    return np.frombuffer(content, "u1") if content != b"bad" else None  # of which no row can be made


def rows(*contents: bytes) -> list[tuple[str, bytes, int]]:
    return [(f"r{number}", content, number) for number, content in enumerate(contents)]


def test_the_first_one_that_can_be_decoded():
    name, row, label = first_row(rows(b"bad", b"ab", b"c"), decode, skips=True, **SOME)
    assert (name, row.tolist(), label) == ("r1", [97, 98], 1)


def test_without_skipping_the_first_one_has_to_be_good():
    with pytest.raises(dt.DataError, match="'r0' can't be decoded"):
        first_row(rows(b"bad", b"ab"), decode, skips=False, **SOME)


def test_no_more_are_read_than_are_tried(monkeypatch):
    monkeypatch.setattr(first_row_module, "MOST_TRIED", 2)
    read = iter(rows(b"bad", b"bad", b"ab"))
    with pytest.raises(dt.DataError, match="None of the first 2 records can be decoded"):
        first_row(read, decode, skips=True, **SOME)
    assert next(read)[0] == "r2"


def test_there_may_be_none():
    with pytest.raises(dt.DataError, match=r"There is no record in 'a\.tar'"):
        first_row([], decode, skips=False, **SOME)


def test_augmented_rows_have_the_shape_that_augment_makes():
    row = np.zeros((4, 3), "u1")
    found = augmented(decode, lambda row, _: row[:2].astype("f4"), "r0", row)
    assert found is not None
    assert (found.row_shape, np.dtype(found.dtype)) == ((2, 3), np.dtype("f4"))
    assert augmented(decode, None, "r0", row) is None
