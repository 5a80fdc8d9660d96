"""The epoch plan: which rows form global batch k, as a value of a few numbers that every rank computes for itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np

from dask_train.data.permutation import mixed, permuted

Shuffle = Literal[True, False, "partition"]

# Rows whose order is worked out at once: enough that NumPy's calls cost little a row, few enough for a few megabytes.
WINDOW_ROWS = 1 << 15

Rows = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True, kw_only=True)
class EpochPlan:
    """The order of all rows in one epoch; the same on every rank and for any number of them.

    Parameters
    ----------
    lengths
        int64 ``(num_partitions,)``: rows of each partition.
    shuffle
        True draws each batch from all partitions, each as often as its length asks (stratified), its rows in an order
        of their own; ``"partition"`` takes the partitions one after the other in a new order, the rows of each
        shuffled; False keeps the order of the collection.
    seed, epoch
        What fixes the order.

    Notes
    -----
    Stratified: row j of a partition's own order, of n, gets the time ``(j + u) / n``, with one random u in (0, 1) for
    each partition, and rows come by time. So any stretch of the order has of each partition its due, within one row,
    and nothing of the size of the data set is stored or sorted: times are worked out a window at a time.
    """

    lengths: np.ndarray = field(repr=False)
    shuffle: Shuffle
    seed: int
    epoch: int

    @cached_property
    def num_rows(self) -> int:
        """Rows of the epoch."""
        return int(self.lengths.sum())

    @cached_property
    def _keys(self) -> np.ndarray:
        """One hash a partition: of the seed, the epoch and its number."""
        numbers = np.arange(len(self.lengths), dtype=np.uint64)
        start = mixed(np.array([self.seed % 2**64], np.uint64) + mixed(np.array([self.epoch], np.uint64)))
        return mixed(numbers * np.uint64(0xD1B54A32D192ED03) + start)

    @cached_property
    def _phases(self) -> np.ndarray:
        return (mixed(self._keys).astype(np.float64) + 0.5) / 2.0**64

    @cached_property
    def _in_turn(self) -> tuple[np.ndarray, np.ndarray]:
        """The partitions one after the other, and where each begins in the order."""
        turn = np.argsort(self._keys) if self.shuffle == "partition" else np.arange(len(self.lengths))
        return turn, np.concatenate([[0], np.cumsum(self.lengths[turn])])

    def stretches(self, start: int = 0) -> Iterator[Rows]:
        """The order from a position on, in stretches of some ten thousand rows.

        Yields
        ------
        partition, row
            int64 arrays: of each row its partition, and its number there.
        """
        return self._by_time(start) if self.shuffle is True else self._one_by_one(start)

    def _one_by_one(self, start: int) -> Iterator[Rows]:
        turn, starts = self._in_turn
        for first in range(start, self.num_rows, WINDOW_ROWS):
            position = np.arange(first, min(first + WINDOW_ROWS, self.num_rows))
            nth = np.searchsorted(starts, position, side="right") - 1
            partition, row = turn[nth], position - starts[nth]
            if self.shuffle == "partition":
                row = permuted(row, self.lengths[partition], self._keys[partition])
            yield partition, row

    def _drawn(self, time: float) -> np.ndarray:
        """How many rows each partition has given before that time."""
        return np.clip(np.ceil(self.lengths * time - self._phases), 0, self.lengths).astype(np.int64)

    def _by_time(self, start: int) -> Iterator[Rows]:
        num_windows = max(1, self.num_rows // max(WINDOW_ROWS, len(self.lengths)))
        low, high = 0, num_windows - 1  # the last window that begins at or before the start
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self._drawn(middle / num_windows).sum() <= start else (low, middle - 1)
        before = self._drawn(low / num_windows)
        skip = start - int(before.sum())
        for window in range(low, num_windows):
            after = self.lengths if window + 1 == num_windows else self._drawn((window + 1) / num_windows)
            counts = after - before
            partition = np.repeat(np.arange(len(counts)), counts)
            first = np.repeat(np.cumsum(counts) - counts, counts)
            nth = np.arange(len(partition)) - first + before[partition]
            order = np.argsort((nth + self._phases[partition]) / self.lengths[partition], kind="stable")[skip:]
            partition, nth = partition[order], nth[order]
            yield partition, permuted(nth, self.lengths[partition], self._keys[partition])
            before, skip = after, 0


def global_batches(plan: EpochPlan, batch_size: int, first: int = 0) -> Iterator[Rows]:
    """The rows of each global batch from batch ``first`` on, as :meth:`EpochPlan.stretches` yields them.

    The last batch of an epoch has what is left; none goes on into the next epoch.
    """
    left: Rows = (np.empty(0, np.int64), np.empty(0, np.int64))
    for stretch in plan.stretches(first * batch_size):
        partition, row = (np.concatenate(pair) for pair in zip(left, stretch, strict=True))
        whole = len(row) // batch_size * batch_size
        for start in range(0, whole, batch_size):
            yield partition[start : start + batch_size], row[start : start + batch_size]
        left = partition[whole:], row[whole:]
    if len(left[0]):
        yield left
