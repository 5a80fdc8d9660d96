"""Private parts of distributed, on a cluster within this process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from distributed import Client, LocalCluster

from dask_train.compat import distributed as compat


def on_cluster(test: Callable[[Client], Awaitable[None]], timeout_s: float = 60.0) -> None:
    async def run() -> None:
        settings: dict[str, Any] = {"processes": False, "dashboard_address": "127.0.0.1:0", "asynchronous": True}
        async with (
            LocalCluster(n_workers=2, threads_per_worker=1, **settings) as cluster,
            Client(cluster, asynchronous=True) as client,
        ):
            await asyncio.wait_for(test(client), timeout_s)

    asyncio.run(run())


def fail() -> None:
    raise ValueError("This is what it raises.")


def test_it_is_known_how_many_dask_workers_a_cluster_may_have():
    async def test(client):
        assert compat.cluster_maximum(client) == 0
        client.cluster.adapt(minimum=2, maximum=3)
        assert compat.cluster_maximum(client) == 3
        client.cluster.adapt(minimum=2)
        assert compat.cluster_maximum(client) == float("inf")
        client.cluster._adaptive.stop()
        assert compat.cluster_maximum(client) == 0
        async with Client(client.scheduler.address, asynchronous=True) as connected:
            assert compat.cluster_maximum(connected) is None

    on_cluster(test)


def test_values_go_to_the_dask_worker_that_was_asked_for_and_back():
    async def test(client):
        address = client.cluster.workers[1].address
        futures = await compat.scatter(client, {"a key": [1, 2]}, workers=[address], direct=False, broadcast=False)
        assert await client.who_has(list(futures.values())) == {"a key": [address]}
        assert await compat.gather(client, [futures["a key"]]) == [[1, 2]]

    on_cluster(test)


def test_futures_that_settle():
    async def test(client):
        good, bad = client.submit(sum, [1, 2]), client.submit(fail, pure=False)
        await compat.status_known(good)
        assert good.status == "finished"
        await compat.status_known(bad)
        assert bad.status == "error"
        await client.cancel([good])
        await compat.status_known(good)
        assert good.status == "cancelled"
        never = client.submit(sum, [client.submit(asyncio.sleep, 30)])
        with pytest.raises(TimeoutError):
            await compat.status_known(never, 0.01)

    on_cluster(test)


def test_locks_are_taken_at_once_or_reported_as_held():
    async def test(client):
        locks = client.cluster.scheduler.extensions["multi_locks"]
        assert compat.request_locks(locks, ["a", "b"], "one")
        assert not compat.request_locks(locks, ["b"], "another")
        assert locks.locks["b"] == ["one", "another"]

    on_cluster(test)


def test_whether_a_dask_worker_is_in_this_process():
    seen = []

    async def test(client):
        seen.append(compat.is_dask_worker_here())

    on_cluster(test)
    assert seen == [True]
