"""Memory that the ranks of one host share: words to wait on, and channels in which arrays are summed."""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence

import numpy as np

from dask_train.agreement import futex
from dask_train.agreement.layout import ALIGNMENT_BYTES, rounded

_PAGE = mmap.PAGESIZE
# A rank's word lies this far from the next, so that no two share a cache line (two lines: they are fetched in pairs).
_WORD_BYTES = 128
# How far channels may reach; the file is sparse, so only what is written takes memory.
FILE_BYTES = 1 << 44


class SharedMemory:
    """A file in memory that the ranks of a host map.

    Parameters
    ----------
    descriptor
        Of the file; kept, and closed with this.
    place, num_ranks
        Which of the host's ranks this is, and how many there are.
    """

    def __init__(self, descriptor: int, place: int, num_ranks: int) -> None:
        self.place, self.num_ranks = place, num_ranks
        self._descriptor = descriptor
        self.begin_again()
        self._words = np.frombuffer(mmap.mmap(descriptor, self._top), np.uint32)
        self._address = self._words.ctypes.data
        self.count = 0

    @staticmethod
    def create() -> int:
        """The descriptor of a new file; freed when the last process has closed it."""
        descriptor = os.memfd_create("dask-train-agreement", os.MFD_CLOEXEC)
        try:
            os.ftruncate(descriptor, FILE_BYTES)
        except OSError:
            os.close(descriptor)
            raise
        return descriptor

    def channel(self, shapes: Sequence[tuple[int, ...]], dtype: np.dtype) -> Channel:
        """Room for arrays of these shapes, summed in ``dtype``; all ranks ask for the same ones in the same order."""
        channel = Channel(self, self._top, shapes, dtype)
        self._top += channel.size_bytes
        return channel

    def begin_again(self) -> None:
        """Give the room of all channels to new ones, once all ranks are through with the old ones."""
        self._top = rounded(self.num_ranks * _WORD_BYTES, _PAGE)

    def map(self, offset: int, size_bytes: int) -> mmap.mmap:
        """A part of the file, shared."""
        return mmap.mmap(self._descriptor, size_bytes, offset=offset)

    def arrive(self) -> None:
        """Tell the others that this rank has come to the next point."""
        self.count += 1
        self._words[self.place * _WORD_BYTES // 4] = self.count & 0xFFFFFFFF
        futex.wake(self._address + self.place * _WORD_BYTES)

    def wait_for(self, place: int, timeout_s: float) -> bool:
        """Wait until one rank of the host has come as far as this one; it may return earlier. Whether it has."""
        seen = int(self._words[place * _WORD_BYTES // 4])
        if ((seen - self.count) & 0xFFFFFFFF) < 1 << 31:  # the words wrap around
            return True
        futex.wait_while(self._address + place * _WORD_BYTES, seen, timeout_s)
        return False

    def close(self) -> None:
        """Give up the file; channels that are in use keep what they have mapped."""
        os.close(self._descriptor)


class Channel:
    """A slot for each rank of the host and one for the sum, all of the same layout.

    Attributes
    ----------
    slots
        One array a rank, ``(n,)``.
    total
        The sum, ``(n,)``.
    share
        The part of it that this rank works out.
    mine, totals
        The arrays within this rank's slot, and within the sum; no copies.
    """

    def __init__(self, memory: SharedMemory, offset: int, shapes: Sequence[tuple[int, ...]], dtype: np.dtype) -> None:
        self.shapes = [tuple(shape) for shape in shapes]
        self.dtype = np.dtype(dtype)
        step = ALIGNMENT_BYTES // self.dtype.itemsize
        self._bounds: list[tuple[int, int]] = []
        length = 0
        for shape in self.shapes:
            size = int(np.prod(shape, dtype=np.int64))
            self._bounds.append((length, length + size))
            length = rounded(length + size, step)
        slot_bytes = rounded(max(1, length) * self.dtype.itemsize, _PAGE)
        self.size_bytes = slot_bytes * (memory.num_ranks + 1)
        mapped = memory.map(offset, self.size_bytes)
        parts = [
            np.frombuffer(mapped, self.dtype, length, number * slot_bytes) for number in range(memory.num_ranks + 1)
        ]
        self.slots, self.total = parts[:-1], parts[-1]
        edges = [rounded(length * number // memory.num_ranks, step) for number in range(memory.num_ranks)]
        edges = [min(edge, length) for edge in [*edges, length]]
        self.share = slice(edges[memory.place], edges[memory.place + 1])
        self.mine, self.totals = self._views(self.slots[memory.place]), self._views(self.total)

    def _views(self, of: np.ndarray) -> list[np.ndarray]:
        pairs = zip(self._bounds, self.shapes, strict=True)
        return [of[start:stop].reshape(shape) for (start, stop), shape in pairs]
