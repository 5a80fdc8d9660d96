"""Ranges of shared memory: given out once, kept while they are read, given back in time."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from dask_train.data import pool as pool_module
from dask_train.data.pool import Pool, is_locked, lock_range, process_pool

PAGE = os.sysconf("SC_PAGE_SIZE")

READER = """
import os, sys, time
from dask_train.data.pool import lock_range
lock_range(os.open(sys.argv[1], os.O_RDONLY), int(sys.argv[2]), int(sys.argv[3]))
print("locked", flush=True)
time.sleep(600)
"""


def opened(pool: Pool) -> int:
    """The pool's file as another process has it."""
    return os.open(f"/proc/self/fd/{pool.descriptor}", os.O_RDONLY)


def resident(pool: Pool) -> int:
    """Bytes of memory that its file takes."""
    return os.fstat(pool.descriptor).st_blocks * 512


class Ranges(RuleBasedStateMachine):
    """Whatever is asked for in whatever order, nobody's bytes change."""

    given = Bundle("given")
    read = Bundle("read")

    def __init__(self) -> None:
        super().__init__()
        self.pool = Pool(keep_warm_s=3600.0)
        self.used: dict[int, tuple[int, bytes]] = {}
        self.reading: dict[int, tuple[int, bytes]] = {}
        self.num = 0

    @rule(target=given, size=st.integers(1, 3 * PAGE + 1))
    def allocate(self, size: int) -> int:
        start = self.pool.allocate(size)
        assert start % PAGE == 0
        self.num += 1
        data = bytes([self.num % 251, self.num // 251]) * (size // 2) + b"." * (size % 2)
        self.pool.write(start, data)
        assert start not in self.used
        self.used[start] = (size, data)
        return start

    @rule(start=consumes(given))
    def free(self, start: int) -> None:
        self.pool.free(start, self.used.pop(start)[0])

    @rule(target=read, start=given)
    def borrow(self, start: int) -> int:
        descriptor = opened(self.pool)
        size, data = self.used[start]
        lock_range(descriptor, start, start + size)
        self.reading[descriptor] = (start, data)
        return descriptor

    @rule(descriptor=consumes(read))
    def give_back(self, descriptor: int) -> None:
        del self.reading[descriptor]
        os.close(descriptor)

    @rule()
    def trim(self) -> None:
        self.pool.trim()

    @invariant()
    def all_is_as_it_was(self) -> None:
        assert self.pool.used_bytes == sum(-(-size // PAGE) * PAGE for size, _ in self.used.values())
        for start, data in [*((start, data) for start, (_, data) in self.used.items()), *self.reading.values()]:
            assert os.pread(self.pool.descriptor, len(data), start) == data

    def teardown(self) -> None:
        for descriptor in self.reading:
            os.close(descriptor)
        for start, (size, _) in self.used.items():
            self.pool.free(start, size)
        self.pool.trim()
        if self.pool._trimmer is not None:
            self.pool._trimmer.cancel()
        assert self.pool.descriptor == -1


Ranges.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
TestRanges = Ranges.TestCase


def test_what_is_freed_is_used_again(own_pool):
    with own_pool() as pool:
        first, second = pool.allocate(3 * PAGE), pool.allocate(PAGE)
        pool.free(first, 3 * PAGE)
        assert pool.allocate(PAGE + 1) == first
        assert pool.allocate(PAGE) == first + 2 * PAGE, "the rest of a range is free"
        pool.free(first, PAGE + 1)
        pool.free(first + 2 * PAGE, PAGE)
        assert pool.allocate(3 * PAGE) == first, "neighbours are one range again"
        for start, size in ((first, 3 * PAGE), (second, PAGE)):
            pool.free(start, size)


def test_warm_memory_is_used_before_cold_and_small_before_large(own_pool):
    with own_pool() as pool:
        sizes = (2, 1, 4, 1, 3, 1)
        cold, _, large, _, small, _ = starts = [pool.allocate(size * PAGE) for size in sizes]
        pool.free(cold, 2 * PAGE)
        pool.trim()
        pool.free(large, 4 * PAGE)
        pool.free(small, 3 * PAGE)
        assert [pool.allocate(2 * PAGE) for _ in range(3)] == [small, large, large + 2 * PAGE]
        assert pool.allocate(2 * PAGE) == cold, "rather than new addresses"
        pool.free(small, 2 * PAGE)
        for start, size in zip(starts, sizes, strict=True):
            if start != small:
                pool.free(start, size * PAGE)


def test_what_is_locked_is_not_given_out(own_pool):
    with own_pool() as pool:
        start = pool.allocate(2 * PAGE)
        descriptor = opened(pool)
        lock_range(descriptor, start, start + 10)
        assert is_locked(pool.descriptor, start, start + 2 * PAGE)
        assert not is_locked(pool.descriptor, start + PAGE, start + 2 * PAGE)
        pool.free(start, 2 * PAGE)
        other = pool.allocate(PAGE)
        assert other == start + 2 * PAGE
        duplicate = os.dup(descriptor)
        os.close(descriptor)
        assert pool.allocate(PAGE) == other + PAGE, "a duplicate keeps it locked"
        os.close(duplicate)
        assert pool.allocate(2 * PAGE) == start
        for position in range(0, 4 * PAGE, PAGE):
            pool.free(position, PAGE)


def test_a_reader_that_is_killed_keeps_nothing(own_pool):
    with own_pool() as pool:
        start = pool.allocate(PAGE)
        place = f"/proc/{os.getpid()}/fd/{pool.descriptor}"
        command = [sys.executable, "-c", READER, place, str(start), str(start + PAGE)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as reader:
            try:
                assert reader.stdout.readline() == "locked\n"
                pool.free(start, PAGE)
                other = pool.allocate(PAGE)
                assert other != start
            finally:
                reader.send_signal(signal.SIGKILL)
        assert pool.allocate(PAGE) == start
        pool.free(start, PAGE)
        pool.free(other, PAGE)


def test_freed_memory_stays_for_a_while(own_pool):
    with own_pool() as pool:
        kept, start = pool.allocate(PAGE), pool.allocate(100 * PAGE)
        pool.write(start, bytes(100 * PAGE))
        pool.free(start, 100 * PAGE)
        pool.trim(older_than_s=3600.0)
        assert resident(pool) == pool.warm_bytes == 100 * PAGE
        pool.trim()
        assert resident(pool) == pool.warm_bytes == 0
        pool.free(kept, PAGE)


def test_freed_memory_goes_back_by_itself_and_nothing_is_left(own_pool, no_leaks, wait_for):
    with no_leaks(), own_pool(keep_warm_s=0.01) as pool:
        kept, start = pool.allocate(PAGE), pool.allocate(PAGE)
        inode = pool.inode
        pool.write(start, bytes(PAGE))
        pool.free(start, PAGE)
        wait_for(lambda: resident(pool) == 0, "the page goes back")
        descriptor = opened(pool)
        lock_range(descriptor, kept, kept + PAGE)
        pool.free(kept, PAGE)
        os.close(descriptor)
        wait_for(lambda: pool.descriptor == -1, "the file goes, once nobody reads it")
        start = pool.allocate(PAGE)
        pool.write(start, b"new")
        assert pool.inode == os.fstat(pool.descriptor).st_ino != inode
        pool.free(start, PAGE)
        wait_for(lambda: pool.descriptor == -1 and pool._trimmer is None, "the thread ends with the file")


def test_little_that_comes_and_goes_does_not_keep_much_warm(own_pool, monkeypatch):
    now = 0.0
    monkeypatch.setattr(pool_module, "time", SimpleNamespace(monotonic=lambda: now))
    with own_pool() as pool:
        start, kept = pool.allocate(100 * PAGE), pool.allocate(PAGE)
        pool.write(start, bytes(100 * PAGE))
        pool.free(start, 100 * PAGE)
        for now in range(1, 21):  # noqa: B007 - the pool's clock
            small = pool.allocate(PAGE)
            pool.write(small, b"x")
            pool.free(small, PAGE)
            pool.trim(older_than_s=10.0)
        assert resident(pool) < 20 * PAGE
        pool.free(kept, PAGE)
        now += 60.0


def test_the_garbage_collector_may_free_within_any_call(own_pool, monkeypatch):
    class Knot:
        def __init__(self, pool: Pool, start: int) -> None:
            self.pool, self.start, self.me = pool, start, self

        def __del__(self) -> None:
            self.pool.free(self.start, PAGE)

    def collecting(*of: int) -> bool:
        gc.collect()
        return is_locked(*of)

    with own_pool() as pool:
        start = pool.allocate(PAGE)
        gc.disable()
        try:
            Knot(pool, pool.allocate(PAGE))
            monkeypatch.setattr(pool_module, "is_locked", collecting)
            pool.free(start, PAGE)  # in which the knot is found
        finally:
            gc.enable()
        assert pool.allocate(2 * PAGE) == start
        pool.free(start, 2 * PAGE)
        assert not pool._freed


@pytest.mark.parametrize("call", [lambda pool, _: pool.used_bytes, lambda pool, start: pool.free(start, PAGE)])
def test_what_is_freed_while_another_thread_has_the_lock_does_not_wait_for_the_next_call(own_pool, monkeypatch, call):
    with own_pool() as pool:
        first, second = pool.allocate(PAGE), pool.allocate(PAGE)
        resting = Pool._rest

        def rest(self: Pool) -> None:
            """The last that is done with the lock held."""
            resting(self)
            monkeypatch.setattr(Pool, "_rest", resting)
            with ThreadPoolExecutor(1) as other:
                other.submit(pool.free, second, PAGE).result()

        monkeypatch.setattr(Pool, "_rest", rest)
        call(pool, first)
        assert not pool._freed
        if pool.used_bytes:
            pool.free(first, PAGE)


def test_threads_do_not_get_each_others_memory(own_pool):
    failures: list[str] = []

    def work(pool: Pool, number: int) -> None:
        held: list[tuple[int, int]] = []
        for turn in range(150):
            size = PAGE * (1 + (turn * (number + 3)) % 5)
            start = pool.allocate(size)
            pool.write(start, bytes([number]) * size)
            held.append((start, size))
            if len(held) > 3:
                start, size = held.pop(turn % 4)
                if os.pread(pool.descriptor, size, start) != bytes([number]) * size:
                    failures.append(f"{start} of thread {number}")
                pool.free(start, size)
            if turn % 40 == number:
                pool.trim()
        for start, size in held:
            pool.free(start, size)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with own_pool() as pool:
            threads = [threading.Thread(target=work, args=(pool, number)) for number in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(60)
            assert not any(thread.is_alive() for thread in threads)
    finally:
        sys.setswitchinterval(interval)
    assert failures == []


def test_thousands_may_be_freed_while_they_are_read(own_pool, monkeypatch):
    looks = 0

    def looking(*of: int) -> bool:
        nonlocal looks
        looks += 1
        return is_locked(*of)

    monkeypatch.setattr(pool_module, "is_locked", looking)
    with own_pool() as pool:
        starts = [pool.allocate(PAGE) for _ in range(2000)]
        descriptor = opened(pool)
        for start in starts:
            lock_range(descriptor, start, start + 1)
        for start in starts:
            pool.free(start, PAGE)
        assert looks == 2000, "each is looked at once"
        os.close(descriptor)


def test_a_range_may_not_be_cut_off_or_written_by_a_reader(own_pool):
    with own_pool() as pool:
        start = pool.allocate(PAGE)
        descriptor = opened(pool)
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.pwrite(descriptor, b"x", start)
        for size in (0, pool_module.POOL_BYTES * 2):
            with pytest.raises(PermissionError):
                os.ftruncate(pool.descriptor, size)
        os.close(descriptor)
        pool.free(start, PAGE)


def test_a_process_has_one_pool(pool, monkeypatch):
    assert process_pool() is process_pool() is pool
    monkeypatch.setattr(pool_module, "_pool", None)
    made = process_pool()
    assert (made.pid, made.descriptor) == (os.getpid(), -1)
    monkeypatch.setattr(made, "pid", 1)
    assert process_pool() is not made, "a process that was forked has its own"
