"""Which rank has which partition, where each is one rank's as a whole."""

from __future__ import annotations

import heapq

import numpy as np

from dask_train.data.table import Table


def assigned(table: Table, rank: int) -> np.ndarray:
    """Return the partitions of one rank: all that have rows, over all ranks, each of them once.

    Parameters
    ----------
    table
        The data set, and where its partitions and ranks are.
    rank
        Which rank.

    Returns
    -------
    np.ndarray
        int64 ``(n,)``, ascending; none if a host has more ranks than partitions.

    Notes
    -----
    The largest first, each to the rank of its host with the fewest rows so far (Graham, "Bounds on multiprocessing
    timing anomalies", 1969: at most a third more than the best there is for the fullest rank).
    """
    host = int(table.host_of_rank[rank])
    mine = np.flatnonzero((table.owner == host) & (table.lengths > 0))
    ranks = [(0, each) for each in np.flatnonzero(table.host_of_rank == host).tolist()]
    partitions = []
    for number in mine[np.argsort(-table.lengths[mine], kind="stable")].tolist():
        rows, emptiest = ranks[0]
        heapq.heapreplace(ranks, (rows + int(table.lengths[number]), emptiest))
        if emptiest == rank:
            partitions.append(number)
    return np.sort(np.array(partitions, np.int64))
