"""Rows that lie in another program's shared memory, such as a daemon's: a segment that owns none of it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dask_train.data.columns import Column
from dask_train.data.rows import can_be_mapped
from dask_train.data.segment import Segment, SegmentPlace


@dataclass(frozen=True, kw_only=True)
class MappedMemory:
    """Shared memory of another program that this process has mapped.

    Attributes
    ----------
    descriptor, inode
        The file, as this process has it open.
    offsets
        Where each array begins there, in bytes.
    owner
        Keeps the memory as it is for as long as this object is there.
    """

    descriptor: int
    inode: int
    offsets: tuple[int, ...]
    owner: Any


class LentSegment(Segment):
    """A segment in memory that is lent: readers map that memory itself, and nothing is copied.

    Pickling copies it into the other process's own pool, as that of any segment.

    Parameters
    ----------
    columns, num_rows
        What lies there: columns of numbers, C-contiguous.
    lent
        Where.
    """

    __slots__ = ("_lent",)

    def __init__(self, columns: Sequence[Column], num_rows: int, lent: MappedMemory) -> None:
        self._size = 0  # nothing of a pool of ours
        self.columns, self.num_rows = tuple(columns), num_rows
        self._sizes = tuple(num_rows * column.row_bytes for column in columns)
        self._lent = lent
        ends = [offset + size for offset, size in zip(lent.offsets, self._sizes, strict=True)]
        self.place = SegmentPlace(
            pid=os.getpid(),
            descriptor=lent.descriptor,
            inode=lent.inode,
            start=min(lent.offsets),
            stop=max(ends),
            offsets=lent.offsets,
        )

    def __sizeof__(self) -> int:
        """Small: Dask, which moves results to disk to have memory back, would get none of it."""
        return object.__sizeof__(self)

    @staticmethod
    def fits(columns: Sequence[Column], offsets: Sequence[int]) -> bool:
        """Return whether readers can map columns at these offsets; otherwise they have to be copied."""
        return all(
            column.layout is None and can_be_mapped(offset, column.row_bytes)
            for column, offset in zip(columns, offsets, strict=True)
        )
