"""Assigns partitions of a data set to the hosts that serve them: once per role, by where its ranks are at first."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from distributed.comm import get_address_host

from dask_train.data.columns import Columns
from dask_train.data.partition_hosts import assign_partitions
from dask_train.data.table import Table


def table_for_ranks(
    schema: Columns,
    lengths: np.ndarray,
    ranks: Sequence[str],
    where: Sequence[Sequence[str]] | None = None,
    window: int | None = None,
) -> tuple[Table, list[str]]:
    """Return the table of a data set for the ranks of one role, and the hosts that it numbers.

    Parameters
    ----------
    schema, lengths, window
        As of :class:`~dask_train.data.table.Table`.
    ranks
        The address of each rank's Dask worker.
    where
        The addresses of the Dask workers that hold each partition, none for one that is being computed again; None
        where none is computed yet. The first counts.
    """
    hosts: dict[str, int] = {}
    host_of_rank = [hosts.setdefault(get_address_host(address), len(hosts)) for address in ranks]
    home = np.full(len(lengths), -1)
    if where is not None:
        home[:] = [hosts.get(get_address_host(holders[0]), -1) if holders else -1 for holders in where]
    table = Table(
        schema=schema,
        lengths=lengths,
        owner=assign_partitions(lengths, home, np.bincount(host_of_rank)),
        host_of_rank=np.array(host_of_rank, np.int64),
        window=window,
    )
    return table, list(hosts)
