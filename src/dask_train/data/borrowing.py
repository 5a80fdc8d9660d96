"""Opening other processes' pools for reading, so that what is read there is not given out again meanwhile."""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence

from dask_train.data.pool import lock_range
from dask_train.data.segment import SegmentPlace

# What has that number by now may be a FIFO, at which O_RDONLY alone would wait.
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK


def borrow(places: Sequence[SegmentPlace]) -> int | None:
    """Open the pool in which segments lie, read-only, and lock their ranges.

    The caller asks their owner again afterwards: a segment that is still in the same place then stays there, for the
    lock lasts until every duplicate of the descriptor is closed, in whatever process.

    Parameters
    ----------
    places
        All of one pool.

    Returns
    -------
    int or None
        A file descriptor, the caller's to close; None if the process can't be reached from here: it is on another
        host, in another container or another user's, or gone.
    """
    first = places[0]
    try:
        descriptor = os.open(f"/proc/{first.pid}/fd/{first.descriptor}", _FLAGS)
    except OSError:
        return None
    try:
        if os.fstat(descriptor).st_ino == first.inode:
            lock(descriptor, places)
            return descriptor
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


def lock(descriptor: int, places: Sequence[SegmentPlace]) -> None:
    """Lock the ranges of segments in a pool that is open, in addition to those that are locked."""
    for start, stop in _joined(places):
        lock_range(descriptor, start, stop)


def _joined(places: Sequence[SegmentPlace]) -> list[tuple[int, int]]:
    """Ranges with less than a page between them are one lock: the kernel looks through all locks of a file."""
    joined: list[tuple[int, int]] = []
    for start, stop in sorted((place.start, place.stop) for place in places):
        if joined and start - joined[-1][1] < mmap.PAGESIZE:
            joined[-1] = (joined[-1][0], stop)
        else:
            joined.append((start, stop))
    return joined
