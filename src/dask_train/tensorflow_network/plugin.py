"""Registers the scheduler plug-in for networks, feeds and boards; runs have one of their own."""

from __future__ import annotations

from dask_train import scheduler
from dask_train.cluster.peer import Peer
from dask_train.cluster.plugin import install
from dask_train.compat import distributed
from dask_train.tensorflow_network import on_scheduler
from dask_train.tensorflow_network.on_scheduler.plugin import NetworksPlugin


async def ensure_networks_plugin(peer: Peer) -> None:
    """Register the plug-in for networks where the scheduler has none."""
    await install(peer, NetworksPlugin, on_scheduler, scheduler, distributed)
