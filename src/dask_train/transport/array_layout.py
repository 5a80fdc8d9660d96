"""Arrays one after the other in a stretch of memory, each where frameworks take it without a copy."""

from __future__ import annotations

import math
import mmap
from collections.abc import Sequence
from typing import Any

import numpy as np

from dask_train.data.alignment import rounded


class ArraySlot:
    """Room for arrays of these shapes and dtypes.

    Attributes
    ----------
    size_bytes
        Of all of them; whole pages.
    """

    def __init__(self, columns: Sequence[tuple[tuple[int, ...], Any]]) -> None:
        self._places: list[tuple[int, tuple[int, ...], np.dtype]] = []
        offset = 0
        for shape, dtype in columns:
            self._places.append((offset, tuple(shape), np.dtype(dtype)))
            offset = rounded(offset + math.prod(shape) * np.dtype(dtype).itemsize)
        self.size_bytes = rounded(max(1, offset), mmap.PAGESIZE)

    def arrays(self, memory: Any, number: int) -> list[np.ndarray]:
        """Return the arrays, in the slot of that number; no copy."""
        first = number * self.size_bytes
        return [
            np.frombuffer(memory, dtype, math.prod(shape), first + offset).reshape(shape)
            for offset, shape, dtype in self._places
        ]


def bytes_of(array: np.ndarray) -> memoryview:
    """Return the memory of an array, C-contiguous, as bytes."""
    return array.reshape(-1).view(np.uint8).data
