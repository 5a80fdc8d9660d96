"""How a column lies in shared memory whose rows take different numbers of bytes: heads of all rows, then the rows."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np


class Layout(Protocol):
    """What reads and writes such a column; a row's head is of int64, and says where the row lies, counted from there.

    Each kind is a file: :mod:`dask_train.data.text`, :mod:`dask_train.data.sparse_rows`. Memory is uint8 ``(size,)``
    and begins where the head of row 0 would; rows go by numbers, int64 ``(n,)``, counted in heads from there on.
    """

    def head_shape(self, row_shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of a head."""

    def packed(self, rows: Any) -> np.ndarray:
        """Return the image of a partition's rows, uint8 ``(size,)``."""

    def unpacked(self, memory: np.ndarray, numbers: np.ndarray, dtype: str, row_shape: tuple[int, ...]) -> Any:
        """Return rows as partitions have them, read-only where they are views."""

    def write(
        self, out: np.ndarray, memory: np.ndarray, numbers: np.ndarray, dtype: str, row_shape: tuple[int, ...]
    ) -> None:
        """Write rows into an array: of objects as they travel one by one, of numbers as batches have them."""

    def gathered(self, rows: np.ndarray, dtype: str, row_shape: tuple[int, ...]) -> Any:
        """Return rows that have travelled one by one, ``(n, ...)`` objects, as partitions have them."""
