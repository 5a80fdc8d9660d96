"""What all cases of ``handoff.py`` share, in either environment: the rows, the touch of every byte, the stamps.

NumPy only, since Ray's processes import it, too.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

NUM_COLUMNS = 784
ROW_BYTES = 4 * NUM_COLUMNS
NUM_BLOCKS = 44
NUM_PROCESSES = 2
EPOCHS = 3
# What each process is given at a time; the global batch of a dask-train run is that of all processes.
BATCH_ROWS = 4096
_PERIOD = 1000


def rows_of(numbers: np.ndarray) -> np.ndarray:
    """Rows of these numbers, float32 ``(n, 784)``: cheap, so that a hand-off is what takes the time."""
    return np.add.outer((numbers % _PERIOD).astype(np.float32), np.arange(NUM_COLUMNS, dtype=np.float32))


def sum_of(num_rows: int) -> float:
    """The sum of all elements of that many rows."""
    numbers = np.arange(num_rows) % _PERIOD
    return float(NUM_COLUMNS * numbers.sum() + num_rows * NUM_COLUMNS * (NUM_COLUMNS - 1) / 2)


class Reader:
    """What one process has read: touches every byte of what it is given, and notes when."""

    def __init__(self) -> None:
        self._first = 0.0
        self._ends: list[float] = []
        self._total, self._num_bytes = 0.0, 0

    def touch(self, array: np.ndarray) -> None:
        """Read an array; the sum of a batch is the cheapest honest use of it (15 GB/s a core, from ordinary memory)."""
        self._first = self._first or time.time()
        self._total += float(array.sum())
        self._num_bytes += array.nbytes

    def epoch_ended(self) -> None:
        """This process has all of its epoch."""
        self._ends.append(time.time())

    def told(self) -> dict[str, Any]:
        """The account, as JSON takes it."""
        return {"first": self._first, "ends": self._ends, "sum": self._total, "num_bytes": self._num_bytes}


def rates(begun: float, readers: list[dict[str, Any]], num_rows: int) -> dict[str, float]:
    """GB/s of all processes together: of the first epoch from the call and from the first batch, and of the others.

    Parameters
    ----------
    begun
        When the call was made.
    readers
        What each process's :class:`Reader` told.

    Raises
    ------
    AssertionError
        They have not read every row as often as there are epochs.
    """
    epochs = len(readers[0]["ends"])
    data_bytes = num_rows * ROW_BYTES
    assert sum(reader["num_bytes"] for reader in readers) == epochs * data_bytes, "rows are missing or too many"
    difference = sum(reader["sum"] for reader in readers) / (epochs * sum_of(num_rows)) - 1
    assert abs(difference) < 1e-4, f"the sum of what was read is wrong by {difference:.2%}"
    first = min(reader["first"] for reader in readers)
    ended = [max(reader["ends"][epoch] for reader in readers) for epoch in range(epochs)]
    found = {
        "first_epoch_gb_s": data_bytes / (ended[0] - begun) / 1e9,
        "from_first_batch_gb_s": data_bytes / (ended[0] - first) / 1e9,
        "first_batch_s": first - begun,
    }
    if epochs > 1:
        later_s = ended[-1] - min(reader["ends"][0] for reader in readers)
        found["later_epochs_gb_s"] = (epochs - 1) * data_bytes / later_s / 1e9
    return found
