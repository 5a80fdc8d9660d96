"""What ranks leave in the memory of their host."""

from __future__ import annotations

from contextlib import closing

from dask_train.collectives.mirror import MOST_BYTES, Mirrors
from dask_train.collectives.shared_memory import SharedMemory


def test_others_read_the_last_two_states_of_a_rank():
    with closing(SharedMemory(SharedMemory.create(), 1, 3)) as memory:
        mirrors = Mirrors(memory)
        for number in range(4):
            mirrors.put(number, b"state %d" % number)
        assert [mirrors.read(1, number) for number in range(5)] == [None, None, b"state 2", b"state 3", None]
        assert mirrors.read(0, 2) is None, "of another rank"


def test_one_that_cannot_be_mirrored_leaves_nothing():
    with closing(SharedMemory(SharedMemory.create(), 0, 1)) as memory:
        mirrors = Mirrors(memory)
        for number, state in enumerate([b"small", b"", b"x" * MOST_BYTES, b"x" * (MOST_BYTES + 1), None]):
            mirrors.put(number % 2, b"earlier")
            mirrors.put(number, state)
            assert mirrors.read(0, number) == (state if number < 3 else None)
