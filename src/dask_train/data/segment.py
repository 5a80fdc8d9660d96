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

from dask_train.data.alignment import ALIGNMENT_BYTES
from dask_train.data.columns import Column, column_of
from dask_train.data.pool import Pool, process_pool


@dataclass(frozen=True, kw_only=True)
class SegmentPlace:
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


@dataclass(frozen=True, kw_only=True)
class Stored:
    """Columns as they will lie in shared memory.

    ``images`` are uint8 ``(size,)``, not copied except for text and sparse rows.
    """

    columns: tuple[Column, ...]
    num_rows: int
    images: tuple[np.ndarray, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of all of them."""
        return sum(image.nbytes for image in self.images)


def stored(arrays: Sequence[Any]) -> Stored:
    """Columns, arrays or sparse matrices, as they will lie in shared memory.

    Raises
    ------
    TypeError
        An array of objects that are no strings.
    ValueError
        The arrays have different numbers of rows.
    """
    counts = {int(array.shape[0]) for array in arrays}
    if len(counts) != 1:
        raise ValueError(f"the arrays of one partition have {', '.join(map(str, sorted(counts)))} rows")
    columns = tuple(map(column_of, arrays))
    return Stored(columns=columns, num_rows=counts.pop(), images=tuple(map(_image, columns, arrays)))


def _image(column: Column, array: Any) -> np.ndarray:
    if column.layout is not None:
        return column.layout.packed(array)
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8) if array.nbytes else np.empty(0, np.uint8)


class Segment:
    """Rows of one partition in the shared memory of the process that holds this object; freed with it.

    Pickling copies it: the other process has the rows in its own pool.

    Parameters
    ----------
    arrays
        One a column, ``(num_rows, *row_shape)``, also sparse; copied once. What :func:`stored` has made of them is
        taken as well.
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

    __slots__ = ("__weakref__", "_pool", "_size", "_sizes", "columns", "num_rows", "place")

    def __init__(self, arrays: Sequence[Any] | Stored, pool: Pool | None = None) -> None:
        self._size = 0
        content = arrays if isinstance(arrays, Stored) else stored(arrays)
        self.columns, self.num_rows = content.columns, content.num_rows
        self._sizes = tuple(image.nbytes for image in content.images)
        self._pool = pool or process_pool()
        self.place = self._allocate()
        for offset, image in zip(self.place.offsets, content.images, strict=True):
            if image.nbytes:
                self._pool.write(offset, image)

    def _allocate(self) -> SegmentPlace:
        aligned = [_alignment(column, self.num_rows) for column in self.columns]
        sizes = self._sizes
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
        return SegmentPlace(
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
        return sum(self._sizes)

    def __sizeof__(self) -> int:
        """Return what Dask reckons with."""
        return self.nbytes + object.__sizeof__(self)

    def arrays(self) -> list[Any]:
        """Return the columns, ``(num_rows, *row_shape)``: read-only views, for whose life the memory stays.

        Text is copied, into ``str`` objects. Sparse rows are a CSR matrix.
        """
        arrays = []
        for column, image in zip(self.columns, self._images(), strict=True):
            if column.layout is None:
                arrays.append(self._flat(column, image))
            else:
                everything = np.arange(self.num_rows)
                arrays.append(column.layout.unpacked(image, everything, column.dtype, column.row_shape))
        return arrays

    def rows(self, numbers: np.ndarray) -> list[np.ndarray]:
        """Return some rows of the columns, int64 ``(n,)``, copied once; sparse ones as they travel one by one."""
        arrays = []
        for column, image in zip(self.columns, self._images(), strict=True):
            if column.layout is None:
                arrays.append(self._flat(column, image)[numbers])
            else:
                arrays.append(column.empty(len(numbers)))
                column.layout.write(arrays[-1], image, np.asarray(numbers, np.int64), column.dtype, column.row_shape)
        return arrays

    def _flat(self, column: Column, image: np.ndarray) -> np.ndarray:
        flat: np.ndarray = image.view(column.dtype) if image.nbytes else column.empty(self.num_rows)
        return flat.reshape(self.num_rows, *column.row_shape)

    def _images(self) -> list[np.ndarray]:
        return [self._view(size, offset) for size, offset in zip(self._sizes, self.place.offsets, strict=True)]

    def _view(self, size: int, offset: int) -> np.ndarray:
        if not size:
            return np.empty(0, np.uint8)
        before = offset % mmap.ALLOCATIONGRANULARITY
        window = _Window(
            self.place.descriptor, before + size, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ, offset=offset - before
        )
        window.segment = self
        return np.frombuffer(window, np.uint8, size, before)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle it with the rows out of band if the protocol can (5), as Dask's comms do."""
        beside = pickle.PickleBuffer if protocol >= 5 else bytes
        parts = [beside(image.data) for image in self._images() if image.nbytes]
        return _made_again, (self.columns, self.num_rows, self._sizes, *parts)

    def __repr__(self) -> str:
        return f"<Segment: {self.num_rows:,} rows, {self.nbytes:,} bytes>"

    def __del__(self) -> None:
        if self._size and self._pool.pid == os.getpid():
            self._pool.free(self.place.start, self._size)
            self._size = 0


class _Window(mmap.mmap):
    """A mapping that keeps its segment."""

    segment: Segment


def _made_again(columns: tuple[Column, ...], num_rows: int, sizes: tuple[int, ...], *parts: Any) -> Segment:
    left = iter(parts)
    images = tuple(np.frombuffer(next(left) if size else b"", np.uint8) for size in sizes)
    return Segment(Stored(columns=columns, num_rows=num_rows, images=images))


def _alignment(column: Column, num_rows: int) -> int:
    """Return an alignment that is a multiple of a row, so that rows of all segments can be numbered through."""
    row = max(1, column.row_bytes)
    both = math.lcm(ALIGNMENT_BYTES, row)
    return both if both <= max(ALIGNMENT_BYTES**2, row * num_rows // 8) else row
