"""The memory of a host's ranks, who are several objects on one file here: words to wait on, and sums in slots."""

from __future__ import annotations

import os
from contextlib import closing, contextmanager

import numpy as np
import pytest

from dask_train.collectives import shared_memory
from dask_train.collectives.shared_memory import SharedMemory

SHAPES = [(3,), (), (2, 5), (0, 4), (700,)]


@contextmanager
def ranks(count):
    """The memory as each rank of a host has it."""
    file = SharedMemory.create()
    try:
        memories = [SharedMemory(os.dup(file), place, count) for place in range(count)]
    finally:
        os.close(file)
    try:
        yield memories
    finally:
        for memory in memories:
            memory.close()


def arrays(rank, dtype="f8"):
    random = np.random.default_rng(rank)
    return [(random.normal(size=shape) * 100).astype(dtype) for shape in SHAPES]


def summed(channels, mine, weights, how=np.add):
    """All ranks give, and then each sums its part."""
    flat = [[array.reshape(-1) for array in its] for its in mine]
    for channel, its, weight in zip(channels, flat, weights, strict=True):
        for section in channel.sections:
            section.give(its[section.arrays], weight)
    for channel, its, weight in zip(channels, flat, weights, strict=True):
        for section in channel.sections:
            section.add_up(its[section.arrays], weight, how)
    return channels[0].totals


@pytest.mark.parametrize("block_bytes", [shared_memory.BLOCK_BYTES, 192])
@pytest.mark.parametrize("count", [1, 2, 3, 7])
@pytest.mark.parametrize("of_one_section", [True, False])
def test_each_rank_sums_its_part_and_all_see_the_whole(of_one_section, count, block_bytes, monkeypatch):
    monkeypatch.setattr(shared_memory, "BLOCK_BYTES", block_bytes)
    weights = [1.0, 0.5, 2.0, 1.0, 0.25, 3.0, 1.0][:count]
    with ranks(count) as memories:
        sections = None if of_one_section else [2, 0, len(SHAPES) - 2]
        channels = [memory.channel(SHAPES, np.dtype("f8"), sections) for memory in memories]
        for turn in range(2):
            mine = [[array + turn for array in arrays(rank)] for rank in range(count)]
            totals = summed(channels, mine, weights)
            for number, shape in enumerate(SHAPES):
                wanted = sum(weight * its[number] for weight, its in zip(weights, mine, strict=True))
                assert totals[number].shape == shape
                np.testing.assert_allclose(totals[number], wanted, rtol=1e-12, atol=1e-9)
        for channel in channels:
            for total, first in zip(channel.totals, totals, strict=True):
                np.testing.assert_array_equal(total, first)


@pytest.mark.parametrize("count", [1, 3])
def test_what_weighs_nothing_counts_as_zeros(count):
    with ranks(count) as memories:
        channels = [memory.channel(SHAPES, np.dtype("f8")) for memory in memories]
        odd = [np.full(shape, np.nan) for shape in SHAPES]
        mine = [odd, *(arrays(rank) for rank in range(1, count))]
        totals = summed(channels, mine, [0.0, *[1.0] * (count - 1)])
        wanted = [sum((its[number] for its in mine[1:]), np.zeros(shape)) for number, shape in enumerate(SHAPES)]
        for total, expected in zip(totals, wanted, strict=True):
            np.testing.assert_allclose(total, expected, atol=1e-9)


def test_another_way_to_combine_keeps_integers():
    with ranks(3) as memories:
        channels = [memory.channel([(4,)], np.dtype("i2")) for memory in memories]
        mine = [[np.array([rank, -rank, 5, 30_000 - rank], "i2")] for rank in range(3)]
        (total,) = summed(channels, mine, [1.0] * 3, np.maximum)
        assert (total.tolist(), total.dtype) == ([2, 0, 5, 30_000], np.int16)


def test_infinite_complex_numbers_of_weight_1_stay_as_they_are():
    with ranks(2) as memories:
        channels = [memory.channel([(1,)], np.dtype("c16")) for memory in memories]
        (total,) = summed(channels, [[np.array([complex(np.inf, 0)])], [np.zeros(1, "c16")]], [1.0, 1.0])
        assert (total.real, total.imag) == (np.inf, 0)


@pytest.mark.parametrize("dtype", ["f4", "f8", "i1", "c16"])
def test_arrays_are_aligned_and_do_not_overlap(dtype):
    with ranks(2) as (one, other):
        channels = [memory.channel(shapes, np.dtype(dtype)) for shapes in (SHAPES, [(5,)]) for memory in (one, other)]
        for channel in channels[::2]:
            for total in channel.totals:
                assert total.ctypes.data % 64 == 0
                total[...] = 1
        first, second = channels[1], channels[3]
        assert all((total == 1).all() for total in (*first.totals, *second.totals)), "the other rank sees it"
        second.totals[0][...] = 0
        assert all((total == 1).all() for total in first.totals)


def test_channels_of_nothing():
    with ranks(2) as memories:
        for shapes in ([], [(0, 3)]):
            channels = [memory.channel(shapes, np.dtype("f4")) for memory in memories]
            mine = [[np.zeros(shape, "f4") for shape in shapes]] * 2
            assert [total.shape for total in summed(channels, mine, [1.0, 1.0])] == shapes


def test_room_is_given_again_from_where_one_says():
    with ranks(2) as (memory, _):
        bottom = memory.top
        kept = memory.channel([(10,)], np.dtype("f8"))
        above = memory.top
        for _ in range(3):
            memory.channel([(100_000,)], np.dtype("f8")).total[:] = 7
            memory.begin_again(above)
        kept.total[:] = 1
        memory.channel([(10,)], np.dtype("f8")).total[:] = 7
        assert (kept.totals[0] == 1).all()
        memory.begin_again()
        assert memory.top == bottom > 0, "the words of the ranks are never given away"


def test_who_waits_sees_whether_the_other_has_come():
    with ranks(2) as (one, other):
        one.arrive()
        assert one.wait_for(0, 0.0)
        assert not one.wait_for(1, 0.0)
        other.arrive()
        assert one.wait_for(1, 0.0)
        other.arrive()
        assert one.wait_for(1, 0.0), "it may be further"
        assert not other.wait_for(0, 0.0)


def test_channels_keep_what_they_have_mapped():
    with ranks(1) as (memory,):
        channel = memory.channel([(3,)], np.dtype("f8"))
    channel.total[:] = 3
    assert channel.totals[0].tolist() == [3.0] * 3


def test_the_file_takes_no_memory_by_itself_and_ends_with_programs():
    file = SharedMemory.create()
    try:
        assert os.fstat(file).st_size == shared_memory.FILE_BYTES
        assert os.fstat(file).st_blocks == 0
        assert not os.get_inheritable(file)
    finally:
        os.close(file)


def test_a_file_that_can_not_have_that_size_is_closed(monkeypatch, no_leaks):
    monkeypatch.setattr(shared_memory, "FILE_BYTES", -1)
    with no_leaks(), pytest.raises(OSError, match="Invalid argument"):
        SharedMemory.create()


def test_closing_gives_the_descriptor_back(no_leaks):
    with no_leaks():
        memory = SharedMemory(SharedMemory.create(), 0, 1)
        with closing(memory):
            memory.channel([(3,)], np.dtype("f8"))
        del memory
