"""A segment: one partition's rows in shared memory, as an ordinary Python value."""

from __future__ import annotations

import math
import mmap
import os
import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dask_train.data.columns import Column, column_of
from dask_train.data.pool import Pool, process_pool

ALIGNMENT_BYTES = 64  # what DLPack consumers ask for: https://dmlc.github.io/dlpack/latest/c_api.html


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a segment's bytes lie, for a reader in any process of the host.

    Attributes
    ----------
    pid, descriptor, inode
        The process that owns the pool, its file descriptor there, and the file's number, by which a reader knows that
        it has opened the same.
    start, stop
        The range in the file, in bytes.
    offsets
        Where each column begins in the file: a multiple of its row's size, and of 64 where that costs little.
    """

    pid: int
    descriptor: int
    inode: int
    start: int
    stop: int
    offsets: tuple[int, ...]


class Segment:
    """Rows of one partition in the shared memory of the process that holds this object; freed with it.

    Pickling copies it: the other process has the rows in its own pool.

    Parameters
    ----------
    arrays
        One a column, ``(num_rows, *row_shape)``; copied once.
    pool
        Where to; the process's own where it is None.

    Attributes
    ----------
    columns
        The columns.
    num_rows
        Rows, the same number in all columns.
    place
        Where the bytes lie.

    Raises
    ------
    TypeError
        An array of objects.
    ValueError
        The arrays have different numbers of rows.
    """

    __slots__ = ("__weakref__", "_pool", "_size", "columns", "num_rows", "place")

    def __init__(self, arrays: Sequence[np.ndarray], pool: Pool | None = None) -> None:
        self._size = 0
        counts = {len(array) for array in arrays}
        if len(counts) != 1:
            raise ValueError(f"the arrays of one partition have {', '.join(map(str, sorted(counts)))} rows")
        self.columns = tuple(map(column_of, arrays))
        (self.num_rows,) = counts
        self._pool = pool or process_pool()
        self.place = self._allocate()
        for offset, array in zip(self.place.offsets, arrays, strict=True):
            if array.nbytes:
                self._pool.write(offset, np.ascontiguousarray(array).reshape(-1).view(np.uint8))

    def _allocate(self) -> Place:
        aligned = [_alignment(column, self.num_rows) for column in self.columns]
        sizes = [column.row_bytes * self.num_rows for column in self.columns]
        # Ranges begin at pages: only what is aligned to less divisible sizes may need room before it.
        size = sum(size + alignment for size, alignment in zip(sizes, aligned, strict=True))
        start = self._pool.allocate(size)
        self._size = size
        offsets = []
        end = start
        for column_size, alignment in zip(sizes, aligned, strict=True):
            offsets.append(-(-end // alignment) * alignment)
            end = offsets[-1] + column_size
        pool = self._pool
        return Place(
            pid=pool.pid,
            descriptor=pool.descriptor,
            inode=pool.inode,
            start=start,
            stop=start + size,
            offsets=tuple(offsets),
        )

    @property
    def nbytes(self) -> int:
        """Bytes of the rows."""
        return self.num_rows * sum(column.row_bytes for column in self.columns)

    def __sizeof__(self) -> int:
        """What Dask reckons with."""
        return self.nbytes + object.__sizeof__(self)

    def arrays(self) -> list[np.ndarray]:
        """The columns, ``(num_rows, *row_shape)``: read-only views of the shared memory, which stays while they do."""
        return [self._view(column, offset) for column, offset in zip(self.columns, self.place.offsets, strict=True)]

    def _view(self, column: Column, offset: int) -> np.ndarray:
        size = column.row_bytes * self.num_rows
        if not size:
            return column.empty(self.num_rows)
        before = offset % mmap.ALLOCATIONGRANULARITY
        window = _Window(
            self._pool.descriptor, before + size, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ, offset=offset - before
        )
        window.segment = self
        flat = np.frombuffer(window, column.dtype, size // np.dtype(column.dtype).itemsize, before)
        return flat.reshape(self.num_rows, *column.row_shape)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """The rows go beside the pickle where the protocol knows how (5), as Dask's comms do."""
        parts = [array.reshape(-1).view(np.uint8).data for array in self.arrays() if array.nbytes]
        beside = pickle.PickleBuffer if protocol >= 5 else bytes
        return _made_again, (self.columns, self.num_rows, *map(beside, parts))

    def __repr__(self) -> str:
        return f"<Segment: {self.num_rows:,} rows, {self.nbytes:,} bytes>"

    def __del__(self) -> None:
        if self._size and self._pool.pid == os.getpid():
            self._pool.free(self.place.start, self._size)
            self._size = 0


class _Window(mmap.mmap):
    """A mapping that keeps its segment."""

    segment: Segment


def _made_again(columns: tuple[Column, ...], num_rows: int, *parts: Any) -> Segment:
    left = iter(parts)
    arrays = []
    for column in columns:
        if column.row_bytes * num_rows:
            arrays.append(np.frombuffer(next(left), column.dtype).reshape(num_rows, *column.row_shape))
        else:
            arrays.append(column.empty(num_rows))
    return Segment(arrays)


def _alignment(column: Column, num_rows: int) -> int:
    """A column's offset is a multiple of its row, so that rows of all segments can be numbered through."""
    row = max(1, column.row_bytes)
    both = math.lcm(ALIGNMENT_BYTES, row)
    return both if both <= max(ALIGNMENT_BYTES**2, row * num_rows // 8) else row
