"""Assigns partitions to hosts for a run."""

from __future__ import annotations

import heapq

import numpy as np


def assign_partitions(lengths: np.ndarray, home: np.ndarray, demand: np.ndarray) -> np.ndarray:
    """Spread partitions over hosts so that each has about the rows that its ranks take, moving few.

    Parameters
    ----------
    lengths
        int64 ``(num_partitions,)``: rows of each partition.
    home
        int64 ``(num_partitions,)``: the host where it lies; -1 where it cannot stay.
    demand
        int64 ``(num_hosts,)``: ranks on each host; one at least in all.

    Returns
    -------
    numpy.ndarray
        int64 ``(num_partitions,)``: the host of each partition, in ``range(num_hosts)``.

    Notes
    -----
    A host's due is its ranks' part of all rows, its excess what it has beyond that. Partitions that cannot stay go, the
    largest first, to the host that lacks most. Then partitions move from hosts with an excess to the one that lacks
    most: first, the largest before the smaller ones, those that neither side has too many rows for, so that each row
    moved lowers the sum of all absolute excesses by 2; then those that lower it by 1 a row at least, for which a row
    moved once saves half a row in each epoch. So every such move lowers the sum, and in the end no single one would
    lower it by as many rows as it takes. Ties go to the lower number.
    """
    assert demand.sum() > 0
    hosts = _Hosts(lengths, home, demand)
    for partition in _by_size(lengths, home < 0, descending=True):
        hosts.take(partition)
    hosts.relieve(gain_per_row=2)
    while hosts.relieve(gain_per_row=1):
        pass
    return hosts.owner


class _Hosts:
    """Who has what; row counts are in units of 1 / (all ranks) of a row, in which every due is a whole number."""

    def __init__(self, lengths: np.ndarray, home: np.ndarray, demand: np.ndarray) -> None:
        num_ranks, total = int(demand.sum()), int(lengths.sum())
        rows = np.zeros(len(demand), np.int64)
        np.add.at(rows, home[home >= 0], lengths[home >= 0])
        self.owner = home.copy()
        self._lengths = lengths
        self._size = [length * num_ranks for length in lengths.tolist()]
        self._excess = [
            have * num_ranks - total * ranks for have, ranks in zip(rows.tolist(), demand.tolist(), strict=True)
        ]
        # A heap; what it says of hosts that lack rows is up to date, and those that have given stand there as before.
        self._lacking = [(excess, host) for host, excess in enumerate(self._excess)]
        heapq.heapify(self._lacking)

    def take(self, partition: int) -> None:
        """Give it to the host that lacks most."""
        host = self._lacking[0][1]
        self.owner[partition] = host
        self._excess[host] += self._size[partition]
        heapq.heapreplace(self._lacking, (self._excess[host], host))

    def relieve(self, gain_per_row: int) -> bool:
        """Move from each host with an excess what gains that much; return whether anything has moved."""
        excess = self._excess
        givers = sorted((host for host, its in enumerate(excess) if its > 0), key=lambda host: -excess[host])
        moved = [self._relieve(host, gain_per_row) for host in givers]
        return any(moved)

    def _relieve(self, host: int, gain_per_row: int) -> bool:
        moved = False
        mine = (self.owner == host) & (self._lengths > 0)
        for partition in _by_size(self._lengths, mine, descending=gain_per_row == 2):
            excess, lack, size = self._excess[host], -self._lacking[0][0], self._size[partition]
            if excess <= 0 or lack <= 0:
                break
            if excess + lack - abs(excess - size) - abs(lack - size) >= gain_per_row * size:
                self.take(partition)
                self._excess[host] -= size
                moved = True
        if self._excess[host] < 0:
            heapq.heappush(self._lacking, (self._excess[host], host))
        return moved


def _by_size(lengths: np.ndarray, which: np.ndarray, *, descending: bool) -> list[int]:
    """Sort partitions by their rows, ties by number."""
    partitions = np.flatnonzero(which)
    return partitions[np.argsort(-lengths[partitions] if descending else lengths[partitions], kind="stable")].tolist()
