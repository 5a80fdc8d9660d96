"""A data set as one reader has it: the segments that it can map, side by side, and rows taken from them."""

from __future__ import annotations

import ctypes
import math
import mmap
import os
import weakref
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dask_train.data.alignment import ALIGNMENT_BYTES
from dask_train.data.columns import Column, Columns
from dask_train.data.segment import SegmentPlace
from dask_train.data.sparse_rows import set_read_only

_PROT_READ, _PROT_READ_WRITE = 0x1, 0x3
_PRIVATE, _FIXED, _ANONYMOUS, _NORESERVE = 0x02, 0x10, 0x20, 0x4000  # man mmap(2), Linux
_DONTNEED = 4  # man madvise(2)

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


@dataclass(frozen=True, kw_only=True)
class HeldPartitions:
    """Which partitions can be mapped, and where they lie; travels from an agent to its role processes.

    Attributes
    ----------
    partition, file
        int64 ``(n,)``: numbers of partitions that have rows, and which of the descriptors each lies in.
    offsets
        int64 ``(n, num_columns)``: where each column of each of them begins, in bytes: at places where
        :func:`can_be_mapped`.
    stop
        int64 ``(n,)``: where each of them ends.
    """

    partition: np.ndarray = field(repr=False)
    file: np.ndarray = field(repr=False)
    offsets: np.ndarray = field(repr=False)
    stop: np.ndarray = field(repr=False)


class Rows:
    """Rows of a data set, mapped; nothing is copied until they are taken.

    Every column is one stretch of address space in which all files lie one after the other, so that rows of all
    partitions are numbered through and a batch from many partitions is one gather.

    Parameters
    ----------
    schema, lengths
        The columns, and the rows of each partition, also of those that are not held here.
    held
        What is held here.
    descriptors
        Of the files; they may be closed afterwards.

    Attributes
    ----------
    columns
        ``(n, *row_shape)`` for each column as it is stored: rows and, between segments, anything. Writing to them
        changes this process's own copy of the page only. Of text and of sparse rows it has the heads.
    all_here
        Whether all partitions that have rows are held.
    """

    def __init__(self, schema: Columns, lengths: np.ndarray, held: HeldPartitions, descriptors: Sequence[int]) -> None:
        self.schema, self.lengths = schema, lengths
        self.columns: list[np.ndarray] = []
        self._memory: list[np.ndarray] = []  # for each column, all that is mapped of it
        self._first: list[np.ndarray] = []  # for each column, the number of each partition's first row; or -1
        for number, column in enumerate(schema.columns):
            base, memory, first = _mapped(column, lengths, held, held.offsets[:, number], descriptors)
            self.columns.append(base)
            self._memory.append(memory)
            self._first.append(first)
        # The columns of a data set that is streamed are known with its first group.
        self._is_here = self._first[0] >= 0 if self._first else np.zeros(len(lengths), bool)
        self.all_here = bool(self._is_here.all())

    def turn_to(self, first: int, last: int) -> None:
        """Rows of these groups are read next; nothing to do where all that is here stays here."""

    def is_here(self, partition: np.ndarray) -> np.ndarray:
        """Return of each partition, bool ``(n,)``, whether it can be read here."""
        is_here: np.ndarray = self._is_here[partition]
        return is_here

    def some_partition(self) -> np.ndarray:
        """Return one that has rows, int64 ``(1,)``; that can be read here, if there is such a one."""
        filled = np.flatnonzero(self.lengths)
        here = filled[self._is_here[filled]]
        return (here if len(here) else filled)[:1]

    def numbers(self, partition: np.ndarray, row: np.ndarray) -> list[np.ndarray]:
        """Return the numbers of rows in :attr:`columns`, for each column; all of them have to be here."""
        return [first[partition] + row for first in self._first]

    def take(self, partition: np.ndarray, row: np.ndarray, out: Sequence[np.ndarray | None]) -> None:
        """Copy rows, ``out[c][i]`` being row ``row[i]`` of partition ``partition[i]``; one gather a column.

        Nothing is copied of a column whose ``out`` is None.
        """
        for number, (first, target) in enumerate(zip(self._first, out, strict=True)):
            if target is not None:
                self.rows_of(number, first[partition] + row, target)

    def rows_of(self, column: int, numbers: np.ndarray, out: np.ndarray) -> None:
        """Copy rows of a column by their numbers in :attr:`columns`, as arrays have them: one gather.

        Sparse rows are dense in an array of numbers; in one of objects they are as they travel.
        """
        kind = self.schema.columns[column]
        if kind.layout is not None:
            kind.layout.write(out, self._memory[column], numbers, kind.dtype, kind.row_shape)
        elif out.flags.c_contiguous and out.dtype == kind.dtype:
            # mode="raise" would gather into a buffer of its own first; these numbers are right.
            np.take(self.columns[column], numbers, axis=0, out=out, mode="clip")
        else:
            out[...] = self.columns[column][numbers]

    def partition(self, number: int) -> tuple[Any, ...]:
        """Return all rows of a partition that is here, ``(n, *row_shape)`` of each column.

        Read-only views; text is copied, and sparse rows are a CSR matrix.
        """
        columns: list[Any] = []
        for column, (kind, first) in enumerate(zip(self.schema.columns, self._first, strict=True)):
            start, num_rows = int(first[number]), int(self.lengths[number])
            if kind.layout is not None:
                numbers = np.arange(start, start + num_rows)
                columns.append(kind.layout.unpacked(self._memory[column], numbers, kind.dtype, kind.row_shape))
            else:
                columns.append(self.columns[column][start : start + num_rows])
            set_read_only(columns[-1])
        return tuple(columns)

    def lent(self, partition: int, row: int, num_rows: int) -> list[np.ndarray] | None:
        """Rows of one partition as they lie, ``(num_rows, *row_shape)`` of each column, to be written to: no copy.

        What is written changes this process's own copy of the page, until :meth:`forget`. None if the partition is
        not here, or a column is of text or sparse.
        """
        if not self._is_here[partition] or any(kind.layout is not None for kind in self.schema.columns):
            return None
        starts = [int(first[partition]) + row for first in self._first]
        return [column[start : start + num_rows] for column, start in zip(self.columns, starts, strict=True)]

    def forget(self, lent: Sequence[np.ndarray]) -> None:
        """Make lent rows equal to what all processes see again: changed pages are dropped, and read anew."""
        for rows in lent:
            start = rows.ctypes.data // mmap.PAGESIZE * mmap.PAGESIZE
            length = rows.ctypes.data + rows.nbytes - start
            if rows.nbytes and _libc.madvise(start, length, _DONTNEED):
                code = ctypes.get_errno()
                raise OSError(code, f"{length:,} bytes can't be read anew: {os.strerror(code)}")

    def starts(self, partition: np.ndarray, row: np.ndarray, num_rows: int) -> list[list[int]]:
        """Return where stretches of rows lie that can be read in place, without a copy.

        Parameters
        ----------
        partition, row
            int64 ``(n,)``: stretches one after the other; the rows of a partition have the order that they have there.
        num_rows
            Of each stretch, at least 1.

        Returns
        -------
        list of list of int
            For each column and stretch, the number of its first row in :attr:`columns`; -1 where the rows do not
            follow each other, or not from an aligned address.
        """
        heads, tails = slice(None, None, num_rows), slice(num_rows - 1, None, num_rows)
        apart = (partition[heads] != partition[tails]) | (row[tails] - row[heads] != num_rows - 1)
        starts = []
        for kind, first in zip(self.schema.columns, self._first, strict=True):
            start = first[partition[heads]] + row[heads]
            misaligned = start * kind.row_bytes % ALIGNMENT_BYTES != 0  # the column itself begins at a page
            starts.append(np.where(apart | misaligned | (kind.layout is not None), -1, start).tolist())
        return starts


def _mapped(
    column: Column, lengths: np.ndarray, held: HeldPartitions, offsets: np.ndarray, descriptors: Sequence[int]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return rows as they are stored, all memory of the column, and the number of each partition's first row."""
    first, nothing = np.where(lengths == 0, 0, -1), np.empty(0, np.uint8)
    row = column.row_bytes
    if not row:
        first[held.partition] = np.cumsum(lengths[held.partition]) - lengths[held.partition]
        return column.stored.empty(int(lengths[held.partition].sum())), nothing, first
    if not len(held.partition):
        return column.stored.empty(0), nothing, first
    # Text and entries lie behind what tells where they lie, in the same segment.
    ends = held.stop if column.layout is not None else offsets + lengths[held.partition] * row
    step = math.lcm(mmap.PAGESIZE, row)
    size = 0
    pieces = []
    for file, together, residue in _together(held.file, offsets % row):
        low = int(offsets[together].min()) // mmap.PAGESIZE * mmap.PAGESIZE
        high = int(ends[together].max())
        # The file goes where its rows begin at multiples of a row here, too.
        place = _page_for(low - residue, row)
        start = place + -(-max(0, size - place) // step) * step
        size = start + -(-(high - low) // mmap.PAGESIZE) * mmap.PAGESIZE
        pieces.append((file, together, low, high, start))
    region = _Region(-(-size // row) * row + mmap.PAGESIZE)
    for file, together, low, high, start in pieces:
        region.map(start, descriptors[file], low, high - low)
        first[held.partition[together]] = (offsets[together] - low + start) // row
    memory = region.memory()
    flat = memory[: size // row * row].view(column.stored.dtype)
    return flat.reshape(-1, *column.stored.row_shape), memory, first


def _together(file: np.ndarray, residue: np.ndarray) -> Iterator[tuple[int, np.ndarray, int]]:
    """Partitions that are mapped by one call: a file, their places, and what is left of their offsets by a row.

    In our own pools nothing is left. Elsewhere each partition has a mapping, since no two need to have the same left.
    """
    for number in np.unique(file).tolist():
        of_file = np.flatnonzero(file == number)
        whole = of_file[residue[of_file] == 0]
        if len(whole):
            yield number, whole, 0
        for place in of_file[residue[of_file] != 0].tolist():
            yield number, np.array([place]), int(residue[place])


def _page_for(position: int, row: int) -> int:
    """Return the first multiple of a page that leaves as much by a row as a position does."""
    shared = math.gcd(mmap.PAGESIZE, row)
    pages = position // shared * pow(mmap.PAGESIZE // shared, -1, row // shared) % (row // shared)
    return mmap.PAGESIZE * pages


def can_be_mapped(offset: int, row_bytes: int) -> bool:
    """Return whether rows that begin there in a file can be mapped so that they begin at multiples of a row."""
    return not row_bytes or offset % math.gcd(mmap.PAGESIZE, row_bytes) == 0


class _Region:
    """A stretch of address space into which files are mapped; unmapped when nothing uses it any more."""

    def __init__(self, size: int) -> None:
        # Between files there are zeros, which take no memory: what copies a column as a whole is not killed for it.
        address = _libc.mmap(None, size, _PROT_READ, _PRIVATE | _ANONYMOUS | _NORESERVE, -1, 0)
        _check(address, "reserved", size)
        self._address, self._size = address, size

    def map(self, start: int, descriptor: int, offset: int, length: int) -> None:
        """Put a part of a file there; private, so that no write of this process reaches it."""
        flags = _PRIVATE | _FIXED | _NORESERVE
        at = self._address + start
        _check(_libc.mmap(at, length, _PROT_READ_WRITE, flags, descriptor, offset), "mapped", length)

    def memory(self) -> np.ndarray:
        """Return all of it, uint8 ``(size,)``; unmapped with the last view of it."""
        memory = (ctypes.c_char * self._size).from_address(self._address)
        weakref.finalize(memory, _libc.munmap, self._address, self._size).atexit = False
        return np.frombuffer(memoryview(memory), np.uint8)


def _check(address: int | None, done: str, size: int) -> None:
    if address is None or address == ctypes.c_void_p(-1).value:
        code = ctypes.get_errno()
        raise OSError(code, f"{size:,} bytes of address space can't be {done}: {os.strerror(code)}")


def held_by(partitions: Iterable[tuple[int, int, SegmentPlace]], num_columns: int) -> HeldPartitions:
    """Partitions as ``(number, file, place)``."""
    ordered = sorted(partitions, key=lambda each: each[0])
    return HeldPartitions(
        partition=np.array([number for number, _, _ in ordered], np.int64),
        file=np.array([file for _, file, _ in ordered], np.int64),
        offsets=np.array([place.offsets for _, _, place in ordered], np.int64).reshape(len(ordered), num_columns),
        stop=np.array([place.stop for _, _, place in ordered], np.int64),
    )
