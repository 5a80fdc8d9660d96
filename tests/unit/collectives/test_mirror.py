"""What ranks leave in the memory of their host."""

from __future__ import annotations

from contextlib import closing

from dask_train.collectives.mirror import MOST_BYTES, Mirrors
from dask_train.collectives.shared_memory import SharedMemory


def test_others_read_the_last_two_states_of_a_rank():
    with closing(SharedMemory(SharedMemory.create(), 1, 3)) as memory:
        mirrors = Mirrors(memory)
        for number in range(4):
            mirrors.put(1, number, b"state %d" % number)
        assert [mirrors.read(1, number) for number in range(5)] == [None, None, b"state 2", b"state 3", None]
        assert mirrors.read(0, 2) is None, "of another rank"


def test_one_that_cannot_be_mirrored_leaves_nothing():
    with closing(SharedMemory(SharedMemory.create(), 0, 1)) as memory:
        mirrors = Mirrors(memory)
        for number, state in enumerate([b"small", b"", b"x" * MOST_BYTES, b"x" * (MOST_BYTES + 1), None]):
            mirrors.put(0, number % 2, b"earlier")
            mirrors.put(0, number, state)
            assert mirrors.read(0, number) == (state if number < 3 else None)


def test_the_next_host_gets_the_states_of_all_ranks_of_a_host():
    with closing(SharedMemory(SharedMemory.create(), 0, 2)) as memory, closing(_alone()) as elsewhere:
        mirrors, copies = Mirrors(memory), Mirrors(elsewhere)
        mirrors.put(2, 4, b"of two")
        mirrors.put(3, 5, b"of three")
        copies.put(3, 4, b"not mirrored any more")
        copies.put_packed(mirrors.news([2, 3], {4, 5}))
        assert [[copies.read(rank, border) for border in (4, 5)] for rank in (2, 3)] == [
            [b"of two", None],
            [None, b"of three"],
        ]


def test_what_the_next_host_has_is_not_passed_on_again():
    with closing(SharedMemory(SharedMemory.create(), 0, 2)) as memory, closing(_alone()) as elsewhere:
        mirrors, copies = Mirrors(memory), Mirrors(elsewhere)
        mirrors.put(0, 4, b"x" * 1000)
        mirrors.put(1, 4, b"of one")
        copies.put_packed(mirrors.news([0, 1], {4}))
        mirrors.put(1, 4, None)  # a rank that has changed what it had mirrored
        news = mirrors.news([0, 1], {4})
        copies.put_packed(news)
        assert len(news) < 100
        assert (copies.read(0, 4), copies.read(1, 4)) == (b"x" * 1000, None)


def _alone():
    return SharedMemory(SharedMemory.create(), 0, 1)
