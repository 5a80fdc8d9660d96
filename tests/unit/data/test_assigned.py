"""Whole partitions of ranks: each once, near, and about as many rows each."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dask_train.data.assigned import assigned
from dask_train.data.columns import Columns
from dask_train.data.partition_hosts import assign_partitions
from dask_train.data.table import Table


@given(st.lists(st.integers(0, 20), max_size=12), st.lists(st.integers(0, 2), min_size=1, max_size=6), st.data())
def test_every_partition_with_rows_is_one_ranks(lengths, hosts, data):
    hosts = np.unique(hosts, return_inverse=True)[1]
    num_hosts = hosts.max() + 1
    home = np.array([data.draw(st.integers(-1, num_hosts - 1)) for _ in lengths], np.int64)
    lengths = np.array(lengths, np.int64)
    owner = assign_partitions(lengths, home, np.bincount(hosts))
    schema = Columns(columns=(), names=None, is_tuple=False)
    table = Table(schema=schema, lengths=lengths, owner=owner, host_of_rank=hosts)
    its = [assigned(table, rank) for rank in range(len(hosts))]
    assert sorted(np.concatenate(its).tolist()) == np.flatnonzero(lengths).tolist()
    for rank, mine in enumerate(its):
        assert (owner[mine] == hosts[rank]).all()
        assert (np.diff(mine) > 0).all()
        beside = [other for other, host in zip(its, hosts, strict=True) if host == hosts[rank]]
        largest = max((int(lengths[mine].max()) if len(mine) else 0) for mine in beside)
        assert lengths[mine].sum() <= min(lengths[other].sum() for other in beside) + largest
