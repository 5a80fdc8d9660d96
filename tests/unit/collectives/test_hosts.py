"""Which ranks share a host."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_train.collectives.hosts import Hosts


@pytest.mark.parametrize(
    ("addresses", "groups", "leaders"),
    [
        (["a:1"], [[0]], [0]),
        (["a:1", "a:2", "a:3"], [[0, 1, 2]], [0]),
        (["b:1", "a:1", "b:2", "a:2"], [[0, 2], [1, 3]], [0, 1]),
        (["[::1]:1", "[::2]:1", "[::1]:2"], [[0, 2], [1]], [0, 1]),
    ],
)
def test_ranks_by_host(addresses, groups, leaders):
    hosts = Hosts.of(addresses)
    assert (hosts.groups, hosts.leaders) == (groups, leaders)
    for group in groups:
        assert all(hosts.group_of(rank) == group for rank in group)


@given(st.lists(st.sampled_from("abcd"), min_size=1, max_size=12))
def test_each_rank_is_in_one_group_and_rank_0_leads_the_first(names):
    hosts = Hosts.of([f"{name}:{port}" for port, name in enumerate(names)])
    assert sorted(rank for group in hosts.groups for rank in group) == list(range(len(names)))
    assert all(len({names[rank] for rank in group}) == 1 and group == sorted(group) for group in hosts.groups)
    assert len(hosts.groups) == len(set(names))
    assert hosts.leaders[0] == 0
    assert hosts.leaders == sorted(hosts.leaders)
