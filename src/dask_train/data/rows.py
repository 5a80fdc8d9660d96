"""A data set as one reader has it: the segments that it can map, side by side, and rows taken from them."""

from __future__ import annotations

import ctypes
import math
import mmap
import os
import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from dask_train.data.columns import Column, Schema
from dask_train.data.segment import ALIGNMENT_BYTES

_PROT_READ, _PROT_READ_WRITE = 0x1, 0x3
_PRIVATE, _FIXED, _ANONYMOUS, _NORESERVE = 0x02, 0x10, 0x20, 0x4000  # man mmap(2), Linux

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


@dataclass(frozen=True, kw_only=True)
class Held:
    """Which partitions can be mapped, and where they lie; travels from an agent to its role processes.

    Attributes
    ----------
    partition, file
        int64 ``(n,)``: numbers of partitions that have rows, and which of the descriptors each lies in.
    offsets
        int64 ``(n, num_columns)``: where each column of each of them begins, in bytes: multiples of its row's bytes.
    """

    partition: np.ndarray = field(repr=False)
    file: np.ndarray = field(repr=False)
    offsets: np.ndarray = field(repr=False)


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
        ``(n, *row_shape)`` for each column: rows and, between segments, anything. Writing to them changes this
        process's own copy of the page only.
    all_here
        Whether all partitions that have rows are held.
    """

    def __init__(self, schema: Schema, lengths: np.ndarray, held: Held, descriptors: Sequence[int]) -> None:
        self.schema, self.lengths = schema, lengths
        self.columns: list[np.ndarray] = []
        self._first: list[np.ndarray] = []  # for each column, the number of each partition's first row; or -1
        for number, column in enumerate(schema.columns):
            base, first = _mapped(column, lengths, held, held.offsets[:, number], descriptors)
            self.columns.append(base)
            self._first.append(first)
        # The columns of a data set that is streamed are known with its first group.
        self._is_here = self._first[0] >= 0 if self._first else np.zeros(len(lengths), bool)
        self.all_here = bool(self._is_here.all())

    def turn_to(self, partition: np.ndarray) -> None:
        """Rows of these partitions are read next; nothing to do where all that is here stays here."""

    def is_here(self, partition: np.ndarray) -> np.ndarray:
        """Of each partition, bool ``(n,)``, whether it can be read here."""
        found: np.ndarray = self._is_here[partition]
        return found

    def numbers(self, partition: np.ndarray, row: np.ndarray) -> list[np.ndarray]:
        """For each column, the numbers of rows in :attr:`columns`; all of them have to be here."""
        return [first[partition] + row for first in self._first]

    def take(self, partition: np.ndarray, row: np.ndarray, out: Sequence[np.ndarray | None]) -> None:
        """Copy rows, ``out[c][i]`` being row ``row[i]`` of partition ``partition[i]``; one gather a column.

        Nothing is copied of a column whose ``out`` is None.
        """
        for column, first, target in zip(self.columns, self._first, out, strict=True):
            if target is not None:
                # mode="raise" would gather into a buffer of its own first; these numbers are right.
                np.take(column, first[partition] + row, axis=0, out=target, mode="clip")

    def starts(self, partition: np.ndarray, row: np.ndarray, num_rows: int) -> list[list[int]]:
        """Where stretches of rows lie that can be read in place, without a copy.

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
        found = []
        for kind, first in zip(self.schema.columns, self._first, strict=True):
            start = first[partition[heads]] + row[heads]
            misaligned = start * kind.row_bytes % ALIGNMENT_BYTES != 0  # the column itself begins at a page
            found.append(np.where(apart | misaligned, -1, start).tolist())
        return found


def _mapped(
    column: Column, lengths: np.ndarray, held: Held, offsets: np.ndarray, descriptors: Sequence[int]
) -> tuple[np.ndarray, np.ndarray]:
    first = np.where(lengths == 0, 0, -1)
    row = column.row_bytes
    if not row:
        first[held.partition] = np.cumsum(lengths[held.partition]) - lengths[held.partition]
        return column.empty(int(lengths[held.partition].sum())), first
    if not len(held.partition):
        return column.empty(0), first
    ends = offsets + lengths[held.partition] * row
    step = math.lcm(mmap.PAGESIZE, row)
    size = 0
    files = []
    for number in range(len(descriptors)):
        of_file = held.file == number
        if not of_file.any():
            continue
        low = int(offsets[of_file].min()) // mmap.PAGESIZE * mmap.PAGESIZE
        high = int(ends[of_file].max())
        # The file goes where its rows begin at multiples of a row here, too.
        start = low % step + -(-max(0, size - low % step) // step) * step
        size = start + -(-(high - low) // mmap.PAGESIZE) * mmap.PAGESIZE
        files.append((number, of_file, low, high, start))
    region = _Region(-(-size // row) * row + mmap.PAGESIZE)
    for number, of_file, low, high, start in files:
        region.map(start, descriptors[number], low, high - low)
        first[held.partition[of_file]] = (offsets[of_file] - low + start) // row
    return region.array(column, size // row), first


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

    def array(self, column: Column, num_rows: int) -> np.ndarray:
        """All of it, as rows of a column."""
        memory = (ctypes.c_char * self._size).from_address(self._address)
        weakref.finalize(memory, _libc.munmap, self._address, self._size).atexit = False
        itemsize = np.dtype(column.dtype).itemsize
        flat = np.frombuffer(memoryview(memory), column.dtype, num_rows * (column.row_bytes // itemsize))
        return flat.reshape(num_rows, *column.row_shape)


def _check(address: int | None, done: str, size: int) -> None:
    if address is None or address == ctypes.c_void_p(-1).value:
        code = ctypes.get_errno()
        raise OSError(code, f"{size:,} bytes of address space can't be {done}: {os.strerror(code)}")


def held_by(partitions: Iterable[tuple[int, int, Sequence[int]]], num_columns: int) -> Held:
    """Partitions as ``(number, file, offsets of its columns)``."""
    found = sorted(partitions, key=lambda each: each[0])
    return Held(
        partition=np.array([number for number, _, _ in found], np.int64),
        file=np.array([file for _, file, _ in found], np.int64),
        offsets=np.array([offsets for _, _, offsets in found], np.int64).reshape(len(found), num_columns),
    )
