"""Rows of all ranks, one rank's after the other's, in two exchanges however many arrays there are."""

from __future__ import annotations

import itertools
import math
import zlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dask_train.collectives.process_group import ProcessGroup
from dask_train.collectives.shared_memory import SumBuffer


class Gathered(NamedTuple):
    """Arrays of the rows of all ranks.

    Attributes
    ----------
    arrays
        ``(rows of all ranks, *row_shape)`` each.
    own
        Which of these rows are this rank's.
    """

    arrays: list[np.ndarray]
    own: slice


class RowGathering:
    """Gathers arrays whose dtypes and shapes of rows are the same on all ranks.

    Two channels take turns, and whoever writes to one has seen everyone in the other since it was read: so each call
    takes two waits for the others, and no more.

    Parameters
    ----------
    group
        The ranks. All make the same calls in the same order.
    """

    def __init__(self, group: ProcessGroup) -> None:
        self._group = group
        self._heads: SumBuffer | None = None
        self._bodies: dict[int, SumBuffer] = {}

    def __call__(self, arrays: Sequence[np.ndarray]) -> Gathered:
        """Gather arrays of as many rows each, which may be none.

        Raises
        ------
        ValueError
            Another rank has arrays of other dtypes, or of other shapes of rows; on all ranks.
        StalledError
            Another rank did not come in time.
        """
        group = self._group
        kinds = [(array.dtype.str, array.shape[1:]) for array in arrays]
        heads = self._told(len(arrays[0]), zlib.crc32(repr(kinds).encode()))
        if (heads[:, 1] != heads[0, 1]).any():
            listed = ", ".join(f"{np.dtype(dtype)} {shape}" for dtype, shape in kinds)
            raise ValueError(
                f"The rows of this worker's share are of {listed}, and those of another worker's are of other shapes "
                "or dtypes. Make the same of any rows, or pass workers=1."
            )
        widths = [array.dtype.itemsize * math.prod(array.shape[1:]) for array in arrays]
        counts = heads[:, 0].tolist()
        edges = [0, *itertools.accumulate(count * sum(widths) for count in counts)]
        body = self._body(edges[-1])
        mine = np.concatenate([_bytes_of(array) for array in arrays])
        group.exchange(body, mine, [slice(*pair) for pair in itertools.pairwise(edges)])
        first = sum(counts[: group.rank])
        return Gathered(_cut(body.total, arrays, widths, counts, edges), slice(first, first + counts[group.rank]))

    def _told(self, rows: int, kinds: int) -> np.ndarray:
        """Return what each rank says of its arrays, ``(ranks, 2)``."""
        if self._heads is None:
            self._heads = self._group.channel([(2 * self._group.size,)], np.int64)
        places = [slice(2 * rank, 2 * rank + 2) for rank in range(self._group.size)]
        self._group.exchange(self._heads, np.array([rows, kinds]), places)
        return self._heads.totals[0].reshape(-1, 2).copy()

    def _body(self, num_bytes: int) -> SumBuffer:
        """Return room for so many bytes; made anew for twice as many, not for one more."""
        room = 1 << max(12, (num_bytes - 1).bit_length())
        if room not in self._bodies:
            self._bodies[room] = self._group.channel([(room,)], np.uint8)
        return self._bodies[room]


def _cut(
    whole: np.ndarray, arrays: Sequence[np.ndarray], widths: Sequence[int], counts: Sequence[int], edges: Sequence[int]
) -> list[np.ndarray]:
    """Return each array's rows out of the ranks' bytes, which lie rank by rank; a copy."""
    found, before = [], 0
    for array, width in zip(arrays, widths, strict=True):
        parts = [
            whole[edge + count * before : edge + count * (before + width)]
            for edge, count in zip(edges, counts, strict=False)
        ]
        joined = np.concatenate(parts).view(array.dtype)
        found.append(joined.reshape(sum(counts), *array.shape[1:]))
        before += width
    return found


def _bytes_of(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
