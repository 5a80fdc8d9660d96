"""Sums of rows know values, their columns and which of them are in one row, and not how rows are cut."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from dask_train.data import row_sums as module
from dask_train.data.row_sums import row_sums

RANDOM = np.random.default_rng(0)
X = RANDOM.integers(-2, 3, (40, 3)).astype(np.float64)
Y = RANDOM.permutation(np.arange(40) % 2)
WORDS = np.array([f"word {number % 7}" for number in range(40)], object)
COMPLEX = RANDOM.normal(size=(40, 2)) + 1j
PIXELS = RANDOM.integers(0, 255, (40, 4, 4)).astype(np.uint8)
ARRAYS = [X, Y, X.astype("f4"), Y.astype(bool), WORDS, WORDS.astype(str), COMPLEX, PIXELS, X.astype(np.longdouble)]


def sums_of(*arrays, ends=(), **settings):
    cuts = zip((0, *ends), (*ends, arrays[0].shape[0]), strict=True)
    return sum(row_sums([each[start:end] for each in arrays], **settings) for start, end in cuts).tolist()


@pytest.mark.parametrize("block_words", [1, 64])
def test_they_are_the_same_however_rows_are_cut_and_in_which_order(block_words, monkeypatch):
    whole, order = sums_of(*ARRAYS), RANDOM.permutation(40)
    monkeypatch.setattr(module, "BLOCK_WORDS", block_words)
    assert sums_of(*ARRAYS, ends=(1, 1, 17)) == whole
    assert sums_of(*(each[order] for each in ARRAYS), ends=(30,)) == whole


@pytest.mark.parametrize("place", range(len(ARRAYS)))
def test_a_value_changes_the_sum_of_its_array_and_that_of_all(place):
    changed = [each.copy() for each in ARRAYS]
    changed[place][3] = next(value for value in changed[place][4:] if np.any(value != changed[place][3]))
    assert (changed[place] != ARRAYS[place]).any()
    differ = [one != other for one, other in zip(sums_of(*ARRAYS), sums_of(*changed), strict=True)]
    assert differ == [number in (place, len(ARRAYS)) for number in range(len(ARRAYS) + 1)]


def test_labels_that_belong_to_other_rows_are_others():
    whole = sums_of(X, Y)
    shuffled = sums_of(X, RANDOM.permutation(Y))
    assert (whole[:2], whole[2] == shuffled[2]) == (shuffled[:2], False)
    assert sums_of(X, 1 - Y)[2] not in (whole[2], shuffled[2])


def test_columns_in_another_order_are_others():
    assert sums_of(X)[0] != sums_of(X[:, ::-1])[0]
    assert sums_of(X, Y)[2] != sums_of(Y, X)[2]


def test_the_order_counts_where_rows_are_numbered():
    def numbered(rows):
        return (row_sums([rows[:15]], 0) + row_sums([rows[15:]], 15)).tolist()

    assert numbered(X) == row_sums([X], 0).tolist()
    assert numbered(X[::-1]) != numbered(X)


def test_rows_of_small_numbers_have_as_many_sums_as_there_are_rows():
    bits = (np.arange(4096)[:, None] >> np.arange(12)) & 1
    for dtype in (np.float64, np.float32, np.int8):
        assert len({row_sums([row.astype(dtype)[None]])[0] for row in bits}) == 4096


def test_zeros_of_sparse_rows_and_the_order_of_their_values_do_not_count():
    rows = np.where(X > 0, X, 0.0)
    whole = sums_of(sparse.csr_array(rows), Y)
    written = sparse.csr_array((rows.ravel(), np.tile([0, 1, 2], 40), np.arange(0, 121, 3)), rows.shape)
    turned = sparse.csr_array((rows[:, ::-1].ravel(), np.tile([2, 1, 0], 40), np.arange(0, 121, 3)), rows.shape)
    assert whole == sums_of(written, Y) == sums_of(turned, Y) == sums_of(sparse.csc_array(rows).tocsr(), Y, ends=(5, 9))
    assert sums_of(sparse.csr_array(rows[:, [1, 0, 2]]), Y)[0] != whole[0]


def test_no_rows_add_nothing():
    assert row_sums([X[:0], Y[:0]]).tolist() == row_sums([sparse.csr_array((0, 3)), Y[:0]]).tolist() == [0, 0, 0]
