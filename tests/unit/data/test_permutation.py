"""A permutation that is computed where it is asked for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_train.data.permutation import mixed, permuted


def permutation(length, key):
    index = np.arange(length)
    return permuted(index, np.full(length, length), np.full(length, key, np.uint64))


@given(st.integers(1, 2000), st.integers(0, 2**64 - 1))
def test_each_index_comes_once(length, key):
    assert sorted(permutation(length, key).tolist()) == list(range(length))


@pytest.mark.parametrize("length", [2**k + d for k in (1, 2, 5, 10) for d in (-1, 0, 1)])
def test_around_powers_of_two(length):
    assert sorted(permutation(length, 7).tolist()) == list(range(length))


def test_elements_are_permuted_each_within_its_own():
    lengths, keys = np.array([1, 5, 1000, 5]), np.array([3, 4, 5, 6], np.uint64)
    together = permuted(np.array([0, 2, 999, 4]), lengths, keys)
    alone = [int(permutation(n, key)[i]) for i, n, key in zip([0, 2, 999, 4], lengths.tolist(), keys, strict=True)]
    assert together.tolist() == alone


def test_no_order_is_left():
    found = permutation(10_000, 1)
    assert abs(np.corrcoef(np.arange(10_000), found)[0, 1]) < 0.05
    assert (found == np.arange(10_000)).sum() < 10
    assert (found != permutation(10_000, 2)).mean() > 0.99
    assert (found == permutation(10_000, 1)).all()


def test_lengths_beyond_memory():
    length = 2**62 + 1
    found = permuted(np.array([0, length - 1]), np.full(2, length), np.full(2, 9, np.uint64))
    assert found[0] != found[1]
    assert ((found >= 0) & (found < length)).all()


def test_none():
    empty = np.array([], np.int64)
    assert permuted(empty, empty, empty.astype(np.uint64)).tolist() == []


def test_a_hash_has_no_collisions():
    assert len(np.unique(mixed(np.arange(10_000, dtype=np.uint64)))) == 10_000
