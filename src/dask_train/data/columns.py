"""Aligned columns in one piece of memory that several processes map."""

from __future__ import annotations

import math
import mmap
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

ALIGNMENT_BYTES = 64  # what DLPack consumers ask for: https://dmlc.github.io/dlpack/latest/c_api.html


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column: rows of one dtype and shape.

    Attributes
    ----------
    dtype
        As ``numpy.dtype.str``.
    row_shape
        The shape of one row; ``()`` where a row is a number.
    """

    dtype: str
    row_shape: tuple[int, ...]

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return int(np.dtype(self.dtype).itemsize * math.prod(self.row_shape))


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Where the rows of a data set lie: column after column, each from an aligned offset, partitions in order.

    Attributes
    ----------
    columns
        The columns.
    names
        Their names where the data set is a dict, else None.
    is_tuple
        Whether a batch is a tuple, also of one; a bare array gives bare batches.
    lengths
        Rows of each partition.
    """

    columns: tuple[Column, ...]
    names: tuple[str, ...] | None
    is_tuple: bool
    lengths: tuple[int, ...]

    @property
    def num_rows(self) -> int:
        """Rows in all."""
        return sum(self.lengths)

    def offsets(self) -> list[int]:
        """Where each column begins, and the size of it all, in bytes."""
        found = [0]
        for column in self.columns:
            end = found[-1] + column.row_bytes * self.num_rows
            found.append(-(-end // ALIGNMENT_BYTES) * ALIGNMENT_BYTES)
        return found

    @property
    def size_bytes(self) -> int:
        """Bytes of it all."""
        return self.offsets()[-1]


def open_columns(descriptor: int, layout: Layout) -> list[np.ndarray]:
    """Map the columns of a file descriptor; nothing is copied.

    Returns
    -------
    list of numpy.ndarray
        ``(num_rows, *row_shape)``, C-contiguous. The mapping is private: what a process writes into it, it alone sees.
    """
    offsets = layout.offsets()
    if not offsets[-1]:
        return [np.empty((layout.num_rows, *column.row_shape), column.dtype) for column in layout.columns]
    mapping = mmap.mmap(descriptor, offsets[-1], flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    return [
        np.frombuffer(mapping, column.dtype, math.prod((layout.num_rows, *column.row_shape)), offset).reshape(
            layout.num_rows, *column.row_shape
        )
        for column, offset in zip(layout.columns, offsets, strict=False)
    ]


def column_of(array: np.ndarray) -> Column:
    """What one partition's array says of its column.

    Raises
    ------
    TypeError
        Its elements are objects, which have no place in shared memory.
    """
    if array.dtype.hasobject:
        raise TypeError(f"an array of {array.dtype} holds Python objects; make it numbers, with astype for instance")
    return Column(dtype=array.dtype.str, row_shape=tuple(array.shape[1:]))


def same_columns(parts: Sequence[tuple[Column, ...]]) -> tuple[Column, ...]:
    """The columns that all partitions have.

    Raises
    ------
    ValueError
        Two partitions differ.
    """
    first = parts[0]
    for number, part in enumerate(parts):
        if part != first:
            raise ValueError(f"partition 0 has columns {first} and partition {number} has {part}; make them the same")
    return first
