"""The shared memory of one process: one sparse file without a name, in which ranges are given out, kept warm, reused.

A page that has just been written to takes 2 to 3 times as long to be made as to be written again, so what is freed
stays for a while. A reader in another process opens the file through ``/proc`` and locks the ranges that it reads
(:mod:`dask_train.data.borrowing`): the kernel gives the lock back when the reader dies, and a locked range is not
given out again before. Nothing has a name, so nothing outlives its processes.
"""

from __future__ import annotations

import ctypes
import fcntl
import itertools
import os
import struct
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

# Of address space, not of memory: a page exists when it has been written to.
POOL_BYTES = 1 << 44
# What was freed this long ago goes back to the system.
KEEP_WARM_S = 10.0

_PAGE = os.sysconf("SC_PAGE_SIZE")
_PUNCH_HOLE = 0x01 | 0x02  # FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE: man fallocate(2)
_ADD_SEALS, _SEAL_SHRINK, _SEAL_GROW = 1033, 0x0002, 0x0004  # man fcntl(2)
_LOCK = struct.Struct("hhqqi4x")  # struct flock of 64-bit Linux

_libc = ctypes.CDLL(None, use_errno=True)
_libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]


def lock_range(descriptor: int, start: int, stop: int) -> None:
    """Keep a range of a pool from being given out again, for as long as this open file lives, in any process.

    To the end of its last page, so that the kernel makes one lock of those that follow each other.

    Raises
    ------
    OSError
        The file can't be locked.
    """
    fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _LOCK.pack(fcntl.F_RDLCK, os.SEEK_SET, start, _pages(stop - start), 0))


def is_locked(descriptor: int, start: int, stop: int) -> bool:
    """Return whether any of a range is locked."""
    lock = _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, start, stop - start, 0)
    kind: int = _LOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, lock))[0]
    return kind != fcntl.F_UNLCK


@dataclass(frozen=True)
class _Free:
    start: int
    stop: int
    since: float  # when it was freed; its pages have been given back where this is -inf

    @property
    def size(self) -> int:
        return self.stop - self.start


_COLD = float("-inf")


class Pool:
    """A pool of shared memory. All methods may be called from any thread.

    Parameters
    ----------
    keep_warm_s
        How long freed memory is kept for the next request, in seconds.
    """

    def __init__(self, keep_warm_s: float = KEEP_WARM_S) -> None:
        self.keep_warm_s = keep_warm_s
        self.pid = os.getpid()
        self.descriptor, self.inode = -1, 0  # the file is there while anything is
        self._used = 0
        self._lock = threading.Lock()
        self._freed: deque[_Free] = deque()  # by the garbage collector, perhaps within any other call
        self._free: list[_Free] = []
        self._borrowed: list[_Free] = []
        self._end = 0
        self._trimmer: threading.Timer | None = None

    def _open(self) -> None:
        self.descriptor = os.memfd_create("dask-train", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.descriptor, POOL_BYTES)
        fcntl.fcntl(self.descriptor, _ADD_SEALS, _SEAL_SHRINK | _SEAL_GROW)
        self.inode = os.fstat(self.descriptor).st_ino

    def allocate(self, size: int) -> int:
        """Return the start of a range of ``size`` bytes, aligned to a page; its content is whatever it was."""
        size = _pages(size)
        with self._locked():
            if self.descriptor < 0:
                self._open()
            chosen = self._best(size)
            if chosen is None or chosen.since == _COLD:
                self._take_back()
                chosen = self._best(size)
            if chosen is None:
                start = self._end
                self._end += size
            else:
                self._free.remove(chosen)
                start = chosen.start
                if chosen.size > size:
                    self._free.append(_Free(start + size, chosen.stop, chosen.since))
            self._used += size
            return start

    def _best(self, size: int) -> _Free | None:
        """Return a warm range that fits, or a cold one, which only saves addresses; of those the smallest."""
        fits = [free for free in self._free if free.size >= size]
        return max(fits, key=lambda free: (free.since > _COLD, -free.size), default=None)

    def write(self, position: int, data: Any) -> None:
        """Copy bytes in with ``write()``: they count as no process's resident memory, but as the container's."""
        view = memoryview(data).cast("B")
        while view.nbytes:
            written = os.pwrite(self.descriptor, view, position)
            view, position = view[written:], position + written

    @property
    def used_bytes(self) -> int:
        """Bytes that are given out."""
        with self._locked():
            return self._used

    @property
    def warm_bytes(self) -> int:
        """Bytes that are free and still take memory: they are given out next, or go back with :meth:`trim`."""
        with self._locked():
            self._take_back()
            return sum(free.size for free in self._free if free.since > _COLD)

    def free(self, start: int, size: int) -> None:
        """Take a range back; it is given out again when it is no longer read."""
        self._freed.append(_Free(start, start + _pages(size), time.monotonic()))
        self._reclaim_freed()

    def trim(self, older_than_s: float = 0.0) -> None:
        """Give the pages of free ranges back to the system."""
        with self._locked():
            self._take_back()
            before = time.monotonic() - older_than_s
            for number, free in enumerate(self._free):
                if _COLD < free.since <= before:
                    if _libc.fallocate(self.descriptor, _PUNCH_HOLE, free.start, free.size):
                        raise OSError(ctypes.get_errno(), "pages of shared memory can't be given back")
                    self._free[number] = _Free(free.start, free.stop, _COLD)
            self._merge()
            if self._end == 0 and self.descriptor >= 0:  # nothing is left in it
                os.close(self.descriptor)
                self.descriptor = -1

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """With the lock held, and everything taken over that has been freed."""
        try:
            with self._lock:
                self._take_over()
                yield
                self._rest()
        finally:
            self._reclaim_freed()  # what was freed meanwhile

    def _reclaim_freed(self) -> None:
        """Take over what has been freed, unless the lock is held: its holder then does so at the end."""
        while self._freed and self._lock.acquire(blocking=False):
            try:
                self._take_over()
                self._rest()
            finally:
                self._lock.release()

    def _take_over(self) -> None:
        freed = []
        while self._freed:
            freed.append(self._freed.popleft())
        self._used -= sum(free.size for free in freed)
        self._sort_out(freed)

    def _take_back(self) -> None:
        """Look again at what was still read when it was freed; not at each call, since there may be thousands."""
        borrowed, self._borrowed = self._borrowed, []
        self._sort_out(borrowed)

    def _sort_out(self, ranges: list[_Free]) -> None:
        held = [is_locked(self.descriptor, free.start, free.stop) for free in ranges]
        self._borrowed += itertools.compress(ranges, held)
        if not all(held):
            self._free += [free for free, is_held in zip(ranges, held, strict=True) if not is_held]
            self._merge()

    def _rest(self) -> None:
        """Schedule the return of unused memory to the system."""
        resting = self._borrowed or any(free.since > _COLD for free in self._free)
        if resting and self._trimmer is None:
            self._trim_later()

    def _trim_later(self) -> None:
        trimmer = threading.Timer(self.keep_warm_s, self._trim_now)
        trimmer.name, trimmer.daemon = "dask-train-pool", True
        if not sys.is_finalizing():  # then the memory ends with the process, and a thread would never start
            trimmer.start()
            self._trimmer = trimmer

    def _trim_now(self) -> None:
        with self._lock:
            self._trimmer = None
        self.trim(self.keep_warm_s)

    def _merge(self) -> None:
        """Join neighbours; those that are warm only with those, and what ends the file is free for all.

        They were freed at the mean of their times, by size: little that comes and goes does not keep much warm.
        """
        merged: list[_Free] = []
        for free in sorted(self._free, key=lambda free: free.start):
            last = merged[-1] if merged else None
            if last is not None and last.stop == free.start and (last.since == _COLD) == (free.since == _COLD):
                since = last.since if last.since == free.since else _mean(last, free)
                merged[-1] = _Free(last.start, free.stop, since)
            else:
                merged.append(free)
        if merged and merged[-1].stop == self._end and merged[-1].since == _COLD:
            self._end = merged.pop().start
        self._free = merged


def _mean(one: _Free, other: _Free) -> float:
    return one.since + (other.since - one.since) * other.size / (one.size + other.size)


def _pages(size: int) -> int:
    return max(_PAGE, -(-size // _PAGE) * _PAGE)


_pool: Pool | None = None
_making = threading.Lock()


def process_pool() -> Pool:
    """Return the pool of this process, made when it is first asked for."""
    global _pool  # noqa: PLW0603 - one a process: what others open through /proc is the process's
    with _making:
        if _pool is None or _pool.pid != os.getpid():
            _pool = Pool()
        return _pool
