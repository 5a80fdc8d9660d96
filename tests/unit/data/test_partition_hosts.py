"""Partitions stay, unless a host has more rows than its ranks take and another has fewer."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dask_train.data.partition_hosts import assign_partitions


def excesses(lengths: np.ndarray, owner: np.ndarray, demand: np.ndarray) -> np.ndarray:
    """What each host has beyond its due, in units of 1 / (all ranks) of a row."""
    rows = np.bincount(owner[owner >= 0], lengths[owner >= 0], len(demand)).astype(np.int64)
    return rows * demand.sum() - lengths.sum() * demand


@st.composite
def clusters(draw, *, homeless):
    demand = np.array(draw(st.lists(st.integers(0, 5), min_size=1, max_size=6).filter(any)))
    at = st.integers(-1 if homeless else 0, len(demand) - 1)
    partitions = draw(st.lists(st.tuples(st.one_of(st.integers(0, 9), st.integers(0, 200)), at), max_size=25))
    lengths, home = np.array(partitions, np.int64).reshape(-1, 2).T
    return lengths, home, demand


@given(clusters(homeless=True))
def test_in_the_end_no_move_of_one_partition_gains_its_rows(cluster):
    lengths, home, demand = cluster
    owner = assign_partitions(lengths, home, demand)
    assert owner.dtype == np.int64
    assert owner.shape == lengths.shape
    assert ((owner >= 0) & (owner < len(demand))).all()
    now = excesses(lengths, owner, demand)
    for partition in np.flatnonzero(lengths):
        size = lengths[partition] * demand.sum()
        for host in set(range(len(demand))) - {owner[partition]}:
            then = now.copy()
            then[[owner[partition], host]] += [-size, size]
            assert np.abs(now).sum() - np.abs(then).sum() < size
    assert (assign_partitions(lengths, owner, demand) == owner).all(), "and a second time nothing moves"


@given(clusters(homeless=False))
def test_what_moves_gains_as_many_rows(cluster):
    lengths, home, demand = cluster
    owner = assign_partitions(lengths, home, demand)
    gained = np.abs(excesses(lengths, home, demand)).sum() - np.abs(excesses(lengths, owner, demand)).sum()
    assert gained >= lengths[owner != home].sum() * demand.sum()
    assert (owner[lengths == 0] == home[lengths == 0]).all()


def test_the_largest_that_fit_move_to_the_host_that_lacks_most():
    lengths, home = np.array([60, 10, 10, 30, 10]), np.array([0, 0, 0, 0, 1])
    assert assign_partitions(lengths, home, np.array([2, 1, 1])).tolist() == [0, 1, 1, 2, 1]


def test_those_without_a_home_fill_what_is_lacking():
    lengths, home = np.array([40, 25, 30, 20]), np.array([0, -1, -1, -1])
    assert assign_partitions(lengths, home, np.array([3, 3])).tolist() == [0, 1, 1, 0]


def test_many_partitions_of_all_sizes_come_out_even():
    random = np.random.default_rng(0)
    lengths, home = random.integers(0, 2_000, 100_000), random.integers(-1, 64, 100_000) ** 2 // 64
    demand = random.integers(1, 9, 64)
    owner = assign_partitions(lengths, home, demand)
    assert np.abs(excesses(lengths, owner, demand)).max() < 100 * demand.sum(), "a twentieth of a large partition"
    had_to = np.maximum(0, excesses(lengths, home, demand)).sum() / demand.sum() + lengths[home < 0].sum()
    assert lengths[owner != home].sum() <= had_to + 64 * 2_000
