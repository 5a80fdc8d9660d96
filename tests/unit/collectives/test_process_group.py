"""Ranks that meet and sum, a thread each, through real shared memory."""

from __future__ import annotations

import functools
import os
import threading

import numpy as np
import pytest

from dask_train.collectives import Hosts, ProcessGroup, meet
from dask_train.collectives import futex as futex_module
from dask_train.collectives import shared_memory as memory_module
from dask_train.errors import StalledError

KEY = b"run"
SHAPES = [(3,), (), (2, 5), (0, 4), (1000,)]


def addresses(count, host="10.0.0.1"):
    """Of ranks that nobody else has, on one host."""
    return tuple(f"{host}:{os.getpid()}-{threading.get_ident()}-{rank}" for rank in range(count))


def arrays(rank, dtype):
    random = np.random.default_rng(rank)
    return [(random.normal(size=shape) * 100).astype(dtype) for shape in SHAPES]


def rows(rank, turn, dtype):
    """What a rank has to gather: another number of rows each time and in each rank, with zeros below zero."""
    return np.full((turn * (rank % 3), 2), -0.0 if rank == 4 else rank + 0.5).astype(dtype)


def take_part(places, rank, across=None):
    """One rank: a sum a dtype, weighted and not, and the arrays of the first one."""
    hosts = Hosts.of(places)
    memory = meet(hosts, rank, KEY, 60.0)
    leads = across is not None and rank in hosts.leaders
    replicas = ProcessGroup(hosts, rank, memory, across(hosts.leaders.index(rank)) if leads else None, 60.0)
    found = {}
    for dtype in ("float32", "float64", "int64"):
        channel = replicas.channel(SHAPES, dtype)
        for turn in range(3):  # the channel is used again
            mine = [array * (turn + 1) for array in arrays(rank, dtype)]
            found[dtype, turn] = [array.copy() for array in replicas.sum(channel, mine)]
        found[dtype, "first"] = [array.copy() for array in replicas.broadcast(channel, arrays(rank, dtype))]
        for turn in (1, 0, 9):  # more rows than there was room for; and none in one rank
            its = rows(rank, turn, dtype)
            found[dtype, "gathered", turn] = replicas.gather(dtype, [its, its[:, :0], np.arange(len(its)) - rank])
    channel = replicas.channel(SHAPES, "float64")
    odd = [array * np.nan for array in arrays(rank, "float64")] if rank == 1 else arrays(rank, "float64")
    found["weighted"] = [array.copy() for array in replicas.sum(channel, odd, weight=0.0 if rank == 1 else 0.5)]
    assert all(array.ctypes.data % 64 == 0 for array in channel.totals), "TensorFlow shares its memory"
    replicas.close()
    return found


@pytest.fixture
def together(in_threads):
    """What each rank finds that takes part."""

    def take(places, across=None):
        return in_threads(*(functools.partial(take_part, places, rank, across) for rank in range(len(places))))

    return take


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
            for turn in (1, 0, 9):
                whole, empty, numbers = found[rank][dtype, "gathered", turn]
                every = [rows(one, turn, dtype) for one in range(size)]
                np.testing.assert_array_equal(whole.view("u1"), np.concatenate(every).view("u1"), "to the last bit")
                assert (whole.dtype, empty.shape) == (dtype, (len(whole), 0))
                assert numbers.tolist() == [n - one for one in range(size) for n in range(len(every[one]))]
    for rank in range(size):
        for array, first in zip(found[rank]["weighted"], found[0]["weighted"], strict=True):
            assert np.isfinite(array).all(), "what weighs nothing counts as zero, whatever it is"
            np.testing.assert_array_equal(array, first, err_msg="to the last bit on all ranks")


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_ranks_of_one_host(size, together):
    check(together(addresses(size)), size)


@pytest.mark.parametrize("size", [2, 3])
def test_parts_are_summed_block_by_block(size, monkeypatch, together):
    monkeypatch.setattr(memory_module, "BLOCK_BYTES", 192)  # several in most arrays, and none that ends with one
    check(together(addresses(size)), size)


@pytest.mark.parametrize("with_futex", [True, False])
def test_with_and_without_the_kernels_help(with_futex, monkeypatch, together):
    if not with_futex:
        monkeypatch.setattr(futex_module, "_futex", None)
    check(together(addresses(2)), 2)


def test_leaders_sum_over_hosts(together):
    """Three hosts of two, one and two ranks; a barrier stands for the ring."""
    places = (*addresses(2, "a"), *addresses(1, "b"), *addresses(2, "c"))
    assert Hosts.of(places).groups == [[0, 1], [2], [3, 4]]
    assert Hosts.of(places).leaders == [0, 2, 3]
    check(together(places, Meeting), 5)


class Meeting:
    """The way of the leader of one of three hosts to the others: a barrier and a list."""

    waiting, lock, given = threading.Barrier(3), threading.Lock(), {}

    def __init__(self, place):
        self.place = place

    def __call__(self, arrays, combine, *, rounds):
        assert not rounds
        for array in arrays:
            array[...] = functools.reduce(combine, self.all(array))

    def broadcast(self, array, root):
        array[...] = self.all(array)[root]

    def gather(self, array, blocks):
        for its, other in zip(blocks, self.all(array), strict=True):
            for at in its:
                array[at] = other[at]

    def all(self, array):
        with self.lock:
            self.given[self.place] = array.copy()
        self.waiting.wait(60)
        found = [self.given[place] for place in range(3)]
        self.waiting.wait(60)
        return found


def test_the_first_ones_arrays_are_passed_on_to_the_last_bit(in_threads):
    given = np.array([-0.0, np.nan, np.inf, 5e-324])

    def take(rank):
        replicas = ProcessGroup(hosts, rank, meet(hosts, rank, KEY, 60.0), None, 60.0)
        (told,) = replicas.broadcast(replicas.channel([given.shape], "f8"), [given if rank == 0 else given * np.nan])
        found = told.tobytes()
        replicas.close()
        return found

    hosts = Hosts.of(addresses(3))
    assert in_threads(*(functools.partial(take, rank) for rank in range(3))) == [given.tobytes()] * 3


def test_one_that_does_not_sum():
    hosts = Hosts.of(addresses(2))
    other = threading.Thread(target=lambda: meet(hosts, 1, KEY, 60.0).close())
    other.start()
    replicas = ProcessGroup(hosts, 0, meet(hosts, 0, KEY, 60.0), None, 1.0)
    other.join(60)
    assert not other.is_alive()
    seen, failed = [], threading.Event()

    def look():
        while not failed.wait(0.001):
            summing_s, waiting_s = replicas.seconds()
            if replicas.is_waiting and waiting_s > summing_s:
                seen.append((summing_s, waiting_s))

    looking = threading.Thread(target=look)
    looking.start()
    with pytest.raises(StalledError, match=r"Rank 1 did not come to where rank 0 waits for the others, for 1 s"):
        replicas.sum(replicas.channel([(1,)], "f4"), [np.ones(1)])
    failed.set()
    looking.join(60)
    assert seen, "what goes on counts"
    summing_s, waiting_s = replicas.seconds()
    assert (replicas.is_waiting, waiting_s) == (None, replicas.waiting_s)
    assert 0 < summing_s < replicas.all_reduce_s - waiting_s + 1e-6
    replicas.close()


def test_words_wrap_around(in_threads):
    hosts, there = Hosts.of(addresses(2)), threading.Barrier(2)

    def take(rank):
        memory = meet(hosts, rank, KEY, 60.0)
        memory.count = memory._words[rank * memory_module._WORD_BYTES // 4] = 2**32 - 2
        there.wait(60)
        replicas = ProcessGroup(hosts, rank, memory, None, 60.0)
        channel = replicas.channel([(2,)], "f8")
        found = [replicas.sum(channel, [np.ones(2)])[0].tolist() for _ in range(4)]
        replicas.close()
        return found

    assert in_threads(*(functools.partial(take, rank) for rank in range(2))) == [[[2.0, 2.0]] * 4] * 2


def test_one_alone_waits_for_nobody(monkeypatch):
    monkeypatch.setattr(memory_module, "futex", None)
    hosts = Hosts.of(addresses(1))
    replicas = ProcessGroup(hosts, 0, meet(hosts, 0, KEY, 1.0), None, 1.0)
    channel = replicas.channel([(2,)], "f8")
    for number in range(3):
        mine = np.full(2, number + 0.1)
        for found in (replicas.sum(channel, [mine]), replicas.broadcast(channel, [mine]), replicas.gather("k", [mine])):
            np.testing.assert_array_equal(found[0], mine)
    replicas.close()


def test_only_channels_that_are_to_round_do_so_between_hosts():
    class Across:
        def __call__(self, arrays, combine, *, rounds):
            seen.append(rounds)

    seen = []
    hosts = Hosts.of([*addresses(1), *addresses(1, "10.0.0.2")])
    replicas = ProcessGroup(hosts, 0, meet(hosts, 0, KEY, 60.0), Across(), 60.0)
    for rounds in (True, False):
        channel = replicas.channel([(3,), (2,)], "float32", [1, 1], rounds=rounds)
        replicas.sum(channel, [np.ones(3, "f4"), np.ones(2, "f4")])
        replicas.sum_section(channel, 1, [np.ones(2, "f4")])
    assert seen == [True, True, False, False]
    replicas.close()


def test_rows_of_many_shapes_and_dtypes_take_memory_for_few(on_each_rank):
    def gathered(rank, replicas):
        tops = set()
        for width in range(1, 80):
            mine = [np.full((3, width), rank, "f4"), np.full((3, width, 2), rank, "f4"), np.full((3, 1), rank, "i8")]
            for array, one in zip(replicas.gather("rows", mine), mine, strict=True):
                assert (array.shape, array.dtype) == ((6, *one.shape[1:]), one.dtype)
                np.testing.assert_array_equal(array, np.concatenate([np.zeros_like(one), np.ones_like(one)]))
            tops.add(replicas.top)
        return len(tops)

    assert max(on_each_rank(gathered, 2)) < 10
