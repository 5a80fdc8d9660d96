"""What lies in another process is read where it lies, for as long as it is borrowed."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

from dask_train.data import borrowing
from dask_train.data.borrowing import borrow, lock
from dask_train.data.pool import is_locked
from dask_train.data.segment import Segment

OWNER = """
import pickle, sys
import numpy as np
from dask_train.data.pool import process_pool
from dask_train.data.segment import Segment
segments = [Segment([np.full(1000, number)]) for number in range(3)]
for order in sys.stdin:
    if order == "free 0\\n":
        del segments[0]
    if order == "new\\n":
        segments.append(Segment([np.full(1000, 7)]))
    pickle.dump([segment.place for segment in segments], sys.stdout.buffer)
    sys.stdout.flush()
"""


@contextmanager
def owner() -> Iterator:
    """Another process with three segments: tells it something, returns where they lie then."""
    with subprocess.Popen([sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:

        def tell(order: str):
            process.stdin.write(order.encode() + b"\n")
            process.stdin.flush()
            return pickle.load(process.stdout)

        try:
            yield tell
        finally:
            process.kill()


def read(descriptor: int, place: object) -> list[int]:
    return np.unique(np.frombuffer(os.pread(descriptor, 8000, place.offsets[0]), np.int64)).tolist()


def test_another_process_does_not_use_it_for_something_else():
    with owner() as tell:
        places = tell("")
        descriptor = borrow(places[:2])
        try:
            assert [read(descriptor, place) for place in places] == [[0], [1], [2]]
            tell("free 0")
            assert tell("new")[-1].start not in {place.start for place in places}
            assert read(descriptor, places[0]) == [0]
        finally:
            os.close(descriptor)
        assert tell("new")[-1].start == places[0].start
    assert borrow(places) is None, "the process is gone"


def test_what_is_not_that_pool_is_not_opened(own_pool, no_leaks, tmp_path):
    os.mkfifo(tmp_path / "fifo")
    read_end = os.open(tmp_path / "fifo", os.O_RDONLY | os.O_NONBLOCK)
    with no_leaks(), own_pool() as pool:
        segment = Segment([np.arange(3)], pool)
        place = segment.place
        for other in (
            replace(place, pid=2**22 + 1),  # more than there can be
            replace(place, descriptor=10_000),
            replace(place, inode=place.inode + 1),
            replace(place, descriptor=read_end),  # opening it would wait for a writer
        ):
            assert borrow([other]) is None
        del segment
    os.close(read_end)


def test_ranges_are_locked_to_their_last_byte_and_no_others(own_pool):
    with own_pool() as pool:
        segments = [Segment([np.zeros(600)], pool) for _ in range(6)]  # two pages each
        places = [segment.place for segment in segments]
        descriptor = borrow([places[number] for number in (3, 1, 2)])
        lock(descriptor, [places[5]])
        for number, place in enumerate(places):
            for position in (place.start, place.stop - 1):
                assert is_locked(pool.descriptor, position, position + 1) == (number in (1, 2, 3, 5))
        os.close(descriptor)
        assert not is_locked(pool.descriptor, 0, places[-1].stop)
        del segments


def test_neighbours_are_one_lock(own_pool, monkeypatch):
    locked = []
    monkeypatch.setattr(borrowing, "lock_range", lambda descriptor, *bounds: locked.append(bounds))
    with own_pool() as pool:
        segments = [Segment([np.zeros(600)], pool) for _ in range(50)]
        places = [segment.place for segment in segments]
        os.close(borrow([place for number, place in enumerate(places) if number != 30]))
        assert locked == [(places[0].start, places[29].stop), (places[31].start, places[49].stop)]
        del segments


def test_no_descriptor_is_left_where_it_can_not_be_locked(own_pool, no_leaks, monkeypatch):
    def lock_range(*_: int) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(borrowing, "lock_range", lock_range)
    with no_leaks(), own_pool() as pool:
        segment = Segment([np.zeros(3)], pool)
        with pytest.raises(OSError, match="No locks available"):
            borrow([segment.place])
        del segment
