"""A checksum of rows in shared memory, by which a search that resumes knows whether they are those of then."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import dask
import numpy as np

from dask_train.collections.blocks import delayed_blocks
from dask_train.shared_data.segments import SharedSegments

if TYPE_CHECKING:
    from dask_train.cluster.clients import Client

# Values are looked at so many at a time, with 16 bytes for each.
_AT_ONCE = 1 << 20


def checksum_of(segments: SharedSegments, client: Client) -> str:
    """Return a text that changes where a value or its place does; the same however rows are cut into partitions.

    It is computed where the rows lie.
    """
    blocks = zip(*delayed_blocks([segments.array(number) for number in range(len(segments.columns))]), strict=True)
    firsts = np.cumsum([0, *segments.lengths[:-1]]).tolist()
    of_part = dask.delayed(checksum_of_part, pure=False)
    parts = [of_part(list(columns), first) for columns, first in zip(blocks, firsts, strict=True)]
    return f"{sum(client.compute(parts, sync=True)) % 2**64:016x}"


def checksum_of_part(columns: Sequence[np.ndarray], first: int) -> int:
    """Return the sum of the values of a part, each times a number that belongs to its place.

    Parameters
    ----------
    columns
        Arrays with a row for each row.
    first
        The number of the first row.
    """
    total = 0
    for number, column in enumerate(columns):
        words = _words(column)
        start = first * (words.size // max(1, len(column)))
        for at in range(0, words.size, _AT_ONCE):
            some = words[at : at + _AT_ONCE].astype(np.uint64)
            places = np.arange(start + at, start + at + some.size, dtype=np.uint64)
            total += int(np.sum(some * (2 * places + 1), dtype=np.uint64)) * (2 * number + 1)
    return total % 2**64


def _words(column: np.ndarray) -> np.ndarray:
    """Return the values of an array as whole numbers, as many for each row."""
    if column.dtype.kind == "O":
        return np.fromiter((zlib.crc32(repr(value).encode()) for value in column.flat), np.uint32, column.size)
    size = column.dtype.itemsize
    values = np.ascontiguousarray(column).reshape(-1)
    return values.view(f"u{size}" if size in (1, 2, 4, 8) else np.uint8)
