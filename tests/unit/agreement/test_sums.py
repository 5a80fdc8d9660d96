"""Ranks that meet and sum, a thread each, through real shared memory."""

from __future__ import annotations

import os
import queue
import threading

import numpy as np
import pytest

from dask_train.agreement import Hosts, Replicas, meet
from dask_train.agreement import futex as futex_module
from dask_train.agreement import memory as memory_module
from dask_train.errors import LaunchError, StalledError

SHAPES = [(3,), (), (2, 5), (0, 4), (1000,)]


def addresses(count, host="10.0.0.1"):
    """Of ranks that nobody else has, on one host."""
    return tuple(f"{host}:{os.getpid()}-{threading.get_ident()}-{rank}" for rank in range(count))


def arrays(rank, dtype):
    random = np.random.default_rng(rank)
    return [(random.normal(size=shape) * 100).astype(dtype) for shape in SHAPES]


def take_part(places, rank, results, across=None):
    """One rank: a sum a dtype, weighted and not, and the arrays of the first one."""
    hosts = Hosts.of(places)
    memory = meet(hosts, rank, 10.0)
    replicas = Replicas(hosts, rank, memory, across, 10.0)
    found = {}
    for dtype in ("float32", "float64", "int64"):
        channel = replicas.channel(SHAPES, dtype)
        for turn in range(3):  # the channel is used again
            mine = [array * (turn + 1) for array in arrays(rank, dtype)]
            found[dtype, turn] = [array.copy() for array in replicas.sum(channel, mine)]
        found[dtype, "first"] = [array.copy() for array in replicas.from_first(channel, arrays(rank, dtype))]
    channel = replicas.channel(SHAPES, "float64")
    odd = [array * np.nan for array in arrays(rank, "float64")] if rank == 1 else arrays(rank, "float64")
    found["weighted"] = [array.copy() for array in replicas.sum(channel, odd, weight=0.0 if rank == 1 else 0.5)]
    assert all(array.ctypes.data % 64 == 0 for array in channel.totals), "TensorFlow shares its memory"
    replicas.close()
    results.put((rank, found))


def together(places, across=None):
    results, found = queue.SimpleQueue(), {}
    ranks = [threading.Thread(target=take_part, args=(places, rank, results, across)) for rank in range(len(places))]
    for one in ranks:
        one.start()
    for one in ranks:
        one.join(20)
    while len(found) < len(places):
        rank, its = results.get(timeout=5)
        found[rank] = its
    return found


def check(found, size):
    for dtype in ("float32", "float64", "int64"):
        wanted = arrays(0, dtype)
        for rank in range(1, size):
            wanted = [a + b for a, b in zip(wanted, arrays(rank, dtype), strict=True)]
        for rank in range(size):
            for turn in range(3):
                for array, expected in zip(found[rank][dtype, turn], wanted, strict=True):
                    np.testing.assert_allclose(array, expected * (turn + 1), rtol=1e-5, atol=1e-3)
                    assert (array.dtype, array.shape) == (dtype, expected.shape)
            for array, expected in zip(found[rank][dtype, "first"], arrays(0, dtype), strict=True):
                np.testing.assert_array_equal(array, expected)
    for rank in range(size):
        for array, first in zip(found[rank]["weighted"], found[0]["weighted"], strict=True):
            assert np.isfinite(array).all(), "what weighs nothing counts as zero, whatever it is"
            np.testing.assert_array_equal(array, first, err_msg="to the last bit on all ranks")


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_ranks_of_one_host(size):
    check(together(addresses(size)), size)


@pytest.mark.parametrize("size", [2, 3])
def test_parts_are_summed_block_by_block(size, monkeypatch):
    monkeypatch.setattr(memory_module, "BLOCK_BYTES", 192)  # several in most arrays, and none that ends with one
    check(together(addresses(size)), size)


@pytest.mark.parametrize("with_futex", [True, False])
def test_with_and_without_the_kernels_help(with_futex, monkeypatch):
    if not with_futex:
        monkeypatch.setattr(futex_module, "_futex", None)
    check(together(addresses(2)), 2)


def test_leaders_sum_over_hosts():
    """Three hosts of two, one and two ranks; a barrier stands for the framework's network."""
    places = (*addresses(2, "a"), *addresses(1, "b"), *addresses(2, "c"))
    assert Hosts.of(places).groups == [[0, 1], [2], [3, 4]]
    assert Hosts.of(places).leaders == [0, 2, 3]
    waiting, lock, sums = threading.Barrier(3), threading.Lock(), {}

    def across(array):
        with lock:
            sums.setdefault("total", np.zeros_like(array))
            sums["total"] = sums["total"] + array
        waiting.wait(10)
        array[...] = sums["total"]
        if waiting.wait(10) == 0:
            sums.clear()
        waiting.wait(10)

    check(together(places, across), 5)


def test_one_that_does_not_come():
    hosts = Hosts.of(addresses(2))
    with pytest.raises(LaunchError, match="1 of the 1 other ranks of this host have not come"):
        meet(hosts, 0, 0.1)
    with pytest.raises(LaunchError, match="Rank 0, which leads the ranks of this host, is not there"):
        meet(hosts, 1, 0.1)


def test_one_that_does_not_sum():
    hosts = Hosts.of(addresses(2))
    other = threading.Thread(target=lambda: meet(hosts, 1, 10.0).close())
    other.start()
    replicas = Replicas(hosts, 0, meet(hosts, 0, 10.0), None, 0.2)
    other.join()
    with pytest.raises(StalledError, match=r"Rank 1 did not come to the sum that rank 0 waits in for 0.2 s"):
        replicas.sum(replicas.channel([(1,)], "f4"), [np.ones(1)])
    replicas.close()


def test_another_user_gets_no_memory(monkeypatch):
    hosts = Hosts.of(addresses(2))
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    failed = []

    def lead():
        try:
            meet(hosts, 0, 5.0)
        except LaunchError as error:
            failed.append(str(error))

    leading = threading.Thread(target=lead)
    leading.start()
    with pytest.raises(LaunchError, match="Let all Dask workers of a host run as one user"):
        meet(hosts, 1, 5.0)
    leading.join()
    assert "is a rank of this run on this host" in failed[0]


def test_words_wrap_around():
    hosts = Hosts.of(addresses(1))
    memory = meet(hosts, 0, 1.0)
    memory.count = 2**32 - 2
    replicas = Replicas(hosts, 0, memory, None, 1.0)
    channel = replicas.channel([(2,)], "f8")
    for _ in range(4):
        np.testing.assert_array_equal(replicas.sum(channel, [np.ones(2)])[0], [1, 1])
    replicas.close()
