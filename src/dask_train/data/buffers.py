"""Memory for batches, reused when a batch's arrays are no longer referenced."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from dask_train.data.alignment import ALIGNMENT_BYTES
from dask_train.data.columns import Column


class Buffers:
    """Arrays whose memory comes back when the last array, view or tensor on it is gone.

    Parameters
    ----------
    empty
        Makes new memory of that many bytes, ``(size,)`` uint8, aligned; if it returns None, ordinary memory is taken.
    """

    def __init__(self, empty: Callable[[int], np.ndarray | None] = lambda _: None) -> None:
        self._empty = empty
        self._free: dict[int, deque[np.ndarray]] = {}

    def array(self, column: Column, num_rows: int) -> np.ndarray:
        """``(num_rows, *row_shape)``, C-contiguous and writable; its content is whatever it was; text is new.

        Of a sparse column it is for all numbers of a row.
        """
        if column.is_text:  # objects are of Python's own memory
            return column.empty(num_rows)
        column = column.dense
        size = column.row_bytes * num_rows
        free = self._free.setdefault(size, deque())
        try:
            memory = free.pop()
        except IndexError:
            special = self._empty(size)
            memory = empty_bytes(size) if special is None else special
        return np.asarray(_Loan(memory, free, column.dtype, (num_rows, *column.row_shape)))


class _Loan:
    """What an array on borrowed memory has as its base: the end of the last view is the end of this."""

    def __init__(self, memory: np.ndarray, home: deque[np.ndarray], dtype: str, shape: tuple[int, ...]) -> None:
        self._memory, self._home = memory, home
        self.__array_interface__: dict[str, Any] = {
            "version": 3,
            "typestr": dtype,
            "shape": shape,
            "data": (memory.ctypes.data, False),
        }

    def __del__(self) -> None:
        self._home.append(self._memory)


def empty_bytes(size: int) -> np.ndarray:
    """Return new memory, ``(size,)`` uint8, aligned for DLPack."""
    raw = np.empty(size + ALIGNMENT_BYTES, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT_BYTES
    return raw[start : start + size]
