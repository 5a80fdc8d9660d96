"""Sums over shares: one order of additions for any number of ranks, in memory that ranks of a host share."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from dask_train.collectives.hosts import Hosts
from dask_train.collectives.process_group import ProcessGroup
from dask_train.collectives.share_sums import ShareTree
from dask_train.collectives.shared_memory import BLOCK_BYTES, SharedMemory
from dask_train.data.order import block_of


def pushed(tree, pairs):
    stack = []
    for node, value in pairs:
        tree.push(stack, node, value, lambda left, right: f"({left}{right})")
    return stack


@pytest.mark.parametrize("num_shares", [1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 17])
def test_ranks_add_to_their_nodes_and_these_to_one_sum_whose_order_is_the_same(num_shares):
    tree = ShareTree(num_shares)
    ((_, alone),) = pushed(tree, [(range(share, share + 1), f"{share} ") for share in range(num_shares)])
    for size in range(1, num_shares + 1):
        nodes = []
        for rank, wanted in enumerate(tree.nodes_among(size)):
            shares = block_of(rank, size, num_shares)
            own = pushed(tree, [(range(share, share + 1), f"{share} ") for share in shares])
            assert [node for node, _ in own] == wanted
            nodes += own
        assert pushed(tree, nodes) == [(range(num_shares), alone)]


def test_few_sums_are_kept_where_ranks_divide_the_shares():
    assert [len(nodes) for nodes in ShareTree(8).nodes_among(2)] == [1, 1]
    assert ShareTree(8).nodes_among(3) == [[range(2)], [range(2, 4), range(4, 5)], [range(5, 6), range(6, 8)]]


def summed(shares, size):
    """What each of so many ranks, in threads, gets as the sum of the shares: a list of arrays each."""
    descriptor, num_shares = SharedMemory.create(), len(shares)
    hosts = Hosts([f"10.0.0.1:{rank}" for rank in range(size)])
    shapes = [array.shape for array in shares[0]]

    def rank_sums(rank):
        group = ProcessGroup(hosts, rank, SharedMemory(os.dup(descriptor), rank, size), None, 30.0)
        channel, tree, stack = group.share_channel(shapes, np.float32, num_shares), ShareTree(num_shares), []
        for share in block_of(rank, size, num_shares):
            own = [array.copy() for array in shares[share]]
            tree.push(stack, range(share, share + 1), own, lambda left, right: list(map(np.add, left, right)))
        found = [group.sum_shares(channel, [own for _, own in stack]) for _ in range(2)]
        total = [array.copy() for array in found[1]]
        group.close()
        return total

    try:
        with ThreadPoolExecutor(size) as pool:
            return list(pool.map(rank_sums, range(size)))
    finally:
        os.close(descriptor)


@pytest.mark.parametrize("num_shares", [4, 7])
def test_sums_have_the_same_bits_for_any_number_of_ranks(num_shares):
    random = np.random.default_rng(0)
    shapes = [(3, 5), (BLOCK_BYTES // 2,), (), (0,), (17,)]  # one of several blocks
    shares = [[random.normal(size=shape).astype(np.float32) for shape in shapes] for _ in range(num_shares)]
    (alone,) = summed(shares, 1)
    for total, *parts in zip(alone, *shares, strict=True):
        np.testing.assert_allclose(total, np.sum(parts, axis=0), rtol=1e-4, atol=1e-5)
    for size in range(2, num_shares + 1):
        for of_rank in summed(shares, size):
            assert [each.tobytes() for each in of_rank] == [each.tobytes() for each in alone]
