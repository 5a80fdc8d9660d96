"""What a cluster of this program is kept from while a network or a run is on it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import dask
import pytest

from dask_train.cluster.own_cluster import Shield

PATIENCE = "distributed.deploy.lost-worker-timeout"


async def on_workers(*_, **__):
    return {}


def test_the_cluster_is_patient_until_the_last_shield_is_taken_down():
    """One that was never put up takes nothing down, as where a run fails before; nor does one that is down."""
    peer = SimpleNamespace(dask_end=SimpleNamespace(cluster=object()), on_workers=on_workers)

    async def several():
        first, second = Shield(peer), Shield(peer)
        await first.up()
        assert dask.config.get(PATIENCE) == "1 hour"
        for _ in range(2):
            await Shield(peer).down()
            await second.up()
        await second.down()
        await second.down()
        assert dask.config.get(PATIENCE) == "1 hour"
        await first.down()

    with dask.config.set({PATIENCE: "7 s"}):
        for _ in range(2):
            asyncio.run(several())
            assert dask.config.get(PATIENCE) == "7 s"


def test_a_shield_whose_putting_up_is_cancelled_is_taken_down():
    async def hangs(*_, **__):
        raise asyncio.CancelledError

    peer = SimpleNamespace(dask_end=SimpleNamespace(cluster=object()), on_workers=hangs)

    async def cancelled():
        shield = Shield(peer)
        with pytest.raises(asyncio.CancelledError):
            await shield.up()
        peer.on_workers = on_workers
        await shield.down()

    with dask.config.set({PATIENCE: "7 s"}):
        asyncio.run(cancelled())
        assert dask.config.get(PATIENCE) == "7 s"
