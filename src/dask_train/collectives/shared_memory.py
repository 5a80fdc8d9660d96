"""Memory that the ranks of one host share: words to wait on, and channels in which arrays are summed."""

from __future__ import annotations

import itertools
import mmap
import os
from collections.abc import Iterator, Sequence

import numpy as np

from dask_train.collectives import futex
from dask_train.data.alignment import ALIGNMENT_BYTES, rounded

_PAGE = mmap.PAGESIZE
# A rank's word lies this far from the next, so that no two share a cache line (two lines: they are fetched in pairs).
_WORD_BYTES = 128
# A rank sums this much at a time: its own part, weighted, stays in the core's cache until the others' are added to it.
BLOCK_BYTES = 1 << 17
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
        self._own_word = self._address + place * _WORD_BYTES
        self.count = 0

    @staticmethod
    def create() -> int:
        """Return the descriptor of a new file; freed when the last process has closed it."""
        descriptor = os.memfd_create("dask-train-collectives", os.MFD_CLOEXEC)
        try:
            os.ftruncate(descriptor, FILE_BYTES)
        except OSError:
            os.close(descriptor)
            raise
        return descriptor

    def channel(
        self, shapes: Sequence[tuple[int, ...]], dtype: np.dtype, section_sizes: Sequence[int] | None = None
    ) -> SumBuffer:
        """Room for arrays of these shapes, summed in ``dtype``; all ranks ask for the same ones in the same order."""
        channel = SumBuffer(shapes, dtype, section_sizes)
        self.make_room(channel)
        return channel

    def make_room(self, channel: SumBuffer) -> None:
        """Make room for a channel, which may have had room in another file; all ranks do so in the same order."""
        channel.lie_in(self, self._top)
        self._top += channel.size_bytes

    @property
    def top(self) -> int:
        """Where the next channel begins."""
        return self._top

    def begin_again(self, top: int = 0) -> None:
        """Give the room of all channels from ``top`` on to new ones, once all ranks are through with the old ones."""
        self._top = max(top, rounded(self.num_ranks * _WORD_BYTES, _PAGE))

    def map(self, offset: int, size_bytes: int) -> mmap.mmap:
        """Return a part of the file, shared."""
        return mmap.mmap(self._descriptor, size_bytes, offset=offset)

    def write(self, offset: int, data: bytes) -> None:
        """Write into the file, beyond channels; the others see it before whatever this rank tells them next."""
        view = memoryview(data)
        while view:
            count = os.pwrite(self._descriptor, view, offset)
            view, offset = view[count:], offset + count

    def read(self, offset: int, size_bytes: int) -> bytes:
        """Return what lies in the file; zeros where nothing was written."""
        return os.pread(self._descriptor, size_bytes, offset)

    def arrive(self) -> None:
        """Tell the others that this rank has come to the next point."""
        self.count += 1
        futex.add_one(self._own_word)

    def wait_for(self, place: int, timeout_s: float) -> bool:
        """Return whether one rank of the host has come as far as this one, after waiting for it.

        The wait may end early: a caller waits again.
        """
        seen = int(self._words[place * _WORD_BYTES // 4])
        if ((seen - self.count) & 0xFFFFFFFF) < 1 << 31:  # the words wrap around
            futex.see_all(self._own_word)
            return True
        futex.wait_while(self._address + place * _WORD_BYTES, seen, timeout_s)
        return False

    def leave(self) -> None:
        """Tell the others that this rank comes to no further point here."""
        self._words[self.place * _WORD_BYTES // 4 + 1] = 1

    def has_left(self, place: int) -> bool:
        """Return whether one rank of the host comes to no further point here."""
        return bool(self._words[place * _WORD_BYTES // 4 + 1])

    def close(self) -> None:
        """Give up the file; channels that are in use keep what they have mapped."""
        os.close(self._descriptor)


class SumBuffer:
    """A slot for each rank of the host and one for the sum, all of the same layout; each rank sums a part of it.

    Parameters
    ----------
    shapes, dtype
        Of the arrays. It has no room before :meth:`lie_in`.
    section_sizes
        How many of the arrays are in each section, which may be summed by itself. Default: one has all.

    Attributes
    ----------
    totals
        The arrays of the sum; no copies.
    total
        All of it, ``(n,)``.
    sections
        Its sections, in order.
    rounds
        Whether its numbers travel between hosts as bfloat16. Default: false.
    """

    rounds = False

    def __init__(
        self,
        shapes: Sequence[tuple[int, ...]],
        dtype: np.dtype | type | str,
        section_sizes: Sequence[int] | None = None,
    ) -> None:
        self.dtype, self.shapes = np.dtype(dtype), list(shapes)
        self._section_sizes = section_sizes or [len(self.shapes)]

    def lie_in(self, memory: SharedMemory, offset: int) -> None:
        """Take room in a file in memory, from there on."""
        bounds, length = self._laid_out()
        slots = self._mapped(memory, offset, length, memory.num_ranks)
        ends = list(itertools.accumulate(self._section_sizes, initial=0))
        starts = [*(start for start, _ in bounds), length]
        self.sections = [
            Section(
                slice(first, stop),
                [(low - starts[first], high - starts[first]) for low, high in bounds[first:stop]],
                [slot[starts[first] : starts[stop]] for slot in slots],
                self.total[starts[first] : starts[stop]],
                memory.place,
            )
            for first, stop in itertools.pairwise(ends)
        ]

    def _laid_out(self) -> tuple[list[tuple[int, int]], int]:
        """Return where each array begins and ends in a slot, and the length of a slot."""
        bounds: list[tuple[int, int]] = []
        length = 0
        for shape in self.shapes:
            size = int(np.prod(shape, dtype=np.int64))
            bounds.append((length, length + size))
            length = rounded(length + size, ALIGNMENT_BYTES // self.dtype.itemsize)
        return bounds, length

    def _mapped(self, memory: SharedMemory, offset: int, length: int, num_slots: int) -> list[np.ndarray]:
        """Map so many slots and the sum, which becomes :attr:`total` and :attr:`totals`; return the slots."""
        slot_bytes = rounded(max(1, length) * self.dtype.itemsize, _PAGE)
        self.size_bytes = slot_bytes * (num_slots + 1)
        mapped = memory.map(offset, self.size_bytes)
        *slots, self.total = [
            np.frombuffer(mapped, self.dtype, length, number * slot_bytes) for number in range(num_slots + 1)
        ]
        bounds, _ = self._laid_out()
        self.totals = [
            self.total[start:stop].reshape(shape) for (start, stop), shape in zip(bounds, self.shapes, strict=True)
        ]
        return slots


class Section:
    """Some arrays of a :class:`SumBuffer`, which lie one after the other.

    Parameters
    ----------
    arrays
        Which they are.
    bounds
        Where each of them begins and ends in the section.
    slots, total
        The section in the slot of each rank of the host, and in the sum; ``(n,)`` each.
    place
        Which of the host's ranks this is.
    """

    def __init__(
        self,
        arrays: slice,
        bounds: Sequence[tuple[int, int]],
        slots: Sequence[np.ndarray],
        total: np.ndarray,
        place: int,
    ) -> None:
        self.arrays, self.total = arrays, total
        self._place, self._dtype, length = place, total.dtype, len(total)
        mine = part_of(length, place, len(slots), self._dtype)
        self._given = [
            (number, part, slots[place][at])
            for within in ((0, mine[0]), (mine[1], length))
            for number, part, at in pieces(bounds, within)
        ]
        self._summed = [
            (number, part, [slot[at] for slot in slots], total[at])
            for number, part, at in pieces(bounds, mine, BLOCK_BYTES // self._dtype.itemsize)
        ]
        longest = max((len(total) for *_, total in self._summed), default=0)
        self._scratch = np.zeros(longest, self._dtype)

    def offset(self, first: Section) -> slice:
        """Return which they are among the arrays from another section on."""
        return slice(self.arrays.start - first.arrays.start, self.arrays.stop - first.arrays.start)

    def give(self, flat: Sequence[np.ndarray], weight: float) -> None:
        """Write this rank's arrays, times its weight, into its slot, from which the other ranks sum their parts.

        Parameters
        ----------
        flat
            The arrays, of one dimension each.
        weight
            With 0 they count as zeros, whatever is in them.
        """
        for number, part, target in self._given:
            self._weigh(flat[number][part], weight, target)

    def add_up(self, flat: Sequence[np.ndarray], weight: float, combine: np.ufunc = np.add) -> None:
        """Sum this rank's part, in the order of the ranks; the others have given theirs. As :meth:`give`.

        Parameters
        ----------
        flat, weight
            As :meth:`give` has them.
        combine
            What takes the place of a sum, such as ``np.maximum``.
        """
        for number, part, slots, total in self._summed:
            if len(slots) == 1:
                self._weigh(flat[number][part], weight, total)
                continue
            own = flat[number][part]
            if weight != 1 or own.dtype != self._dtype:  # else it is summed as it is, without a copy
                own = self._scratch[: len(total)]
                self._weigh(flat[number][part], weight, own)
            first, second, *others = [own if place == self._place else slot for place, slot in enumerate(slots)]
            combine(first, second, out=total)
            for other in others:
                combine(total, other, out=total)

    def _weigh(self, array: np.ndarray, weight: float, out: np.ndarray) -> None:
        if weight == 1:  # inf times 1 is NaN among complex numbers
            out[...] = array
        elif weight:
            np.multiply(array, self._dtype.type(weight), out=out)
        else:
            out[...] = 0


def part_of(length: int, place: int, num_ranks: int, dtype: np.dtype) -> tuple[int, int]:
    """Return from where to where one of so many ranks sums the elements of arrays."""
    step = ALIGNMENT_BYTES // dtype.itemsize
    first, last = (min(length, rounded(length * number // num_ranks, step)) for number in (place, place + 1))
    return first, length if place + 1 == num_ranks else last


def pieces(
    bounds: Sequence[tuple[int, int]], within: tuple[int, int], most: int | None = None
) -> Iterator[tuple[int, slice, slice]]:
    """Yield parts of arrays between two positions: the array's number, the part of it, and where that lies."""
    for number, (start, stop) in enumerate(bounds):
        low, high = max(start, within[0]), min(stop, within[1])
        for first in range(low, high, most or max(1, high - low)):
            last = min(high, first + (most or high - low))
            yield number, slice(first - start, last - start), slice(first, last)
