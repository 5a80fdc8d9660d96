"""Sparse partitions in shared memory, which has rows of numbers and of bytes only: each is one row of bytes."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np


def packed(*columns: Any) -> np.ndarray:
    """Return a partition's columns as one row, objects ``(1,)``."""
    row = np.empty(1, object)
    row[0] = pickle.dumps(columns, protocol=5)
    return row


def unpacked(partitions: Iterable[np.ndarray]) -> Iterator[Any]:
    """Give the columns of those that :func:`packed` has made and that have rows, copied out of the shared memory."""
    for (row,) in partitions:
        columns = pickle.loads(row)  # noqa: S301 - the bytes are our own
        if columns[0].shape[0]:
            yield columns
