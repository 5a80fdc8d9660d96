"""A range of a file in memory, mapped for this process alone."""

from __future__ import annotations

import mmap


def private_view(descriptor: int, start: int, size: int) -> memoryview:
    """Return the bytes of a range, mapped copy-on-write; the descriptor stays the caller's.

    Parameters
    ----------
    descriptor
        Open for reading at least.
    start, size
        The range in bytes, not empty.
    """
    before = start % mmap.ALLOCATIONGRANULARITY
    window = mmap.mmap(
        descriptor,
        before + size,
        flags=mmap.MAP_PRIVATE,
        prot=mmap.PROT_READ | mmap.PROT_WRITE,
        offset=start - before,
    )
    return memoryview(window)[before : before + size]
