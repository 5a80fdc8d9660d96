"""The epoch plan: the order of an epoch's rows, as a value of a few numbers from which every rank computes it.

``data/order.py`` cuts the order into global batches, and these into shares of ranks.
"""

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
    window
        Partitions of a group, for data larger than memory: the partitions, in a new order where anything is shuffled,
        are cut into groups, and rows are drawn from one group after the other. None makes one group of all.

    Notes
    -----
    Stratified: row j of a partition's own order, of n, gets the time ``(j + u) / n``, with one random u in (0, 1) for
    each partition, and rows come by time. So any stretch of a group's order has of each partition its due, within one
    row, and nothing of the size of the data set is stored or sorted: times are worked out some ten thousand rows at a
    time.
    """

    lengths: np.ndarray = field(repr=False)
    shuffle: Shuffle
    seed: int
    epoch: int
    window: int | None = None

    @cached_property
    def num_rows(self) -> int:
        """Rows of the epoch."""
        return int(self.lengths.sum())

    @cached_property
    def _keys(self) -> np.ndarray:
        """Return one hash per partition: of the seed, the epoch and its number; no two are the same."""
        numbers = np.arange(len(self.lengths), dtype=np.uint64)
        start = mixed(np.array([self.seed % 2**64], np.uint64) + mixed(np.array([self.epoch], np.uint64)))
        return mixed(numbers * np.uint64(0xD1B54A32D192ED03) + start)

    @cached_property
    def _phases(self) -> np.ndarray:
        return (mixed(self._keys).astype(np.float64) + 0.5) / 2.0**64

    @cached_property
    def _turn(self) -> np.ndarray:
        """The partitions in the order in which groups take them."""
        return np.argsort(self._keys) if self.shuffle else np.arange(len(self.lengths))

    def groups(self) -> list[np.ndarray]:
        """Return the partitions of each group, int64, in the order in which the epoch goes through them."""
        size = self.window or max(1, len(self._turn))
        return [self._turn[first : first + size] for first in range(0, len(self._turn), size)]

    @cached_property
    def group_of_partition(self) -> np.ndarray:
        """int64 ``(num_partitions,)``: which of :meth:`groups` each partition is in."""
        groups = np.empty(len(self._turn), np.int64)
        groups[self._turn] = np.arange(len(self._turn)) // (self.window or max(1, len(self._turn)))
        return groups

    def order(self, start: int = 0) -> Iterator[Rows]:
        """Yield the order from a position on, in stretches of some ten thousand rows or the rest of a group.

        Yields
        ------
        partition, nth
            int64 arrays: of each row its partition, and its place in that partition's own order; :meth:`rows` tells
            which row that is, so that a rank works it out for its own rows alone.
        """
        for group in self.groups():
            lengths = self.lengths[group]
            num_rows = int(lengths.sum())
            if start < num_rows:
                stratified = self.shuffle is True
                drawn = _by_time(lengths, self._phases[group], start) if stratified else _one_by_one(lengths, start)
                for partition, nth in drawn:
                    yield group[partition], nth
            start = max(0, start - num_rows)

    def rows(self, partition: np.ndarray, nth: np.ndarray) -> np.ndarray:
        """Return which row of its partition, int64 ``(n,)``, each place in the partition's own order is."""
        return permuted(nth, self.lengths[partition], self._keys[partition]) if self.shuffle else nth

    def stretches(self, start: int = 0) -> Iterator[Rows]:
        """Do as :meth:`order`, with the number of each row in its partition."""
        for partition, nth in self.order(start):
            yield partition, self.rows(partition, nth)


def _one_by_one(lengths: np.ndarray, start: int) -> Iterator[Rows]:
    ends = np.cumsum(lengths)
    starts = ends - lengths
    for first in range(start, int(ends[-1]), WINDOW_ROWS):
        stop = min(first + WINDOW_ROWS, int(ends[-1]))
        low, high = np.searchsorted(ends, [first, stop - 1], side="right")
        some = slice(low, high + 1)
        counts = np.minimum(ends[some], stop) - np.maximum(starts[some], first)
        partition = np.repeat(np.arange(len(lengths))[some], counts)
        yield partition, np.arange(first, stop) - starts[partition]


def _by_time(lengths: np.ndarray, phases: np.ndarray, start: int) -> Iterator[Rows]:
    def drawn(time: float) -> np.ndarray:
        """Return how many rows each partition has given before that time."""
        return np.clip(np.ceil(lengths * time - phases), 0, lengths).astype(np.int64)

    # Each window costs a look at all partitions, which half as many rows outweigh.
    num_windows = max(1, int(lengths.sum()) // max(WINDOW_ROWS, len(lengths) // 2))
    low, high = 0, num_windows - 1  # the last window that begins at or before the start
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if drawn(middle / num_windows).sum() <= start else (low, middle - 1)
    before = drawn(low / num_windows)
    skip = start - int(before.sum())
    for window in range(low, num_windows):
        after = lengths if window + 1 == num_windows else drawn((window + 1) / num_windows)
        counts = after - before
        partition = np.repeat(np.arange(len(counts)), counts)
        nth = np.arange(len(partition)) + (before + counts - np.cumsum(counts))[partition]
        order = np.argsort((nth + phases[partition]) / lengths[partition], kind="stable")[skip:]
        yield partition[order], nth[order]
        before, skip = after, 0
