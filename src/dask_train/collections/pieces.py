"""What becomes of one partition on its Dask worker. Sent by value: the scheduler need not have this module."""

from __future__ import annotations

from typing import Any

import numpy as np


def part(*pieces: Any) -> list[np.ndarray]:
    """One partition: its columns, C-contiguous, with the same number of rows."""
    arrays = [np.ascontiguousarray(piece) for piece in pieces]
    counts = [len(array) for array in arrays]
    if len(set(counts)) > 1:
        raise ValueError(f"the arrays of one partition have {', '.join(map(str, counts))} rows; cut them alike")
    return arrays


def describe(columns: list[np.ndarray]) -> tuple[int, list[tuple[str, tuple[int, ...]]]]:
    """Rows of a partition, and dtype and row shape of each column; a small result that the client can have."""
    return len(columns[0]), [(array.dtype.str, array.shape[1:]) for array in columns]
