"""Registers plug-ins of ours where a scheduler has none; they travel by value."""

from __future__ import annotations

from types import ModuleType
from typing import Any
from weakref import WeakKeyDictionary

from distributed.protocol.pickle import dumps

from dask_train import dashboard, scheduler
from dask_train.cluster.by_value import ByValue
from dask_train.cluster.peer import Peer
from dask_train.compat import distributed
from dask_train.dashboard.plugin import DashboardPlugin
from dask_train.scheduler.plugin import TrainPlugin

# By client or Dask worker and name of the plug-in, the id of the scheduler that has it: after a scheduler was started
# again, its clients come back to it.
_known: WeakKeyDictionary[Any, dict[str, str]] = WeakKeyDictionary()


async def ensure_plugin(peer: Peer) -> None:
    """Register the plug-in for runs where the scheduler has none."""
    await install(peer, TrainPlugin, scheduler, distributed)


async def ensure_dashboard(peer: Peer) -> None:
    """Give the scheduler's dashboard the page of runs, and its metrics, where the scheduler answers HTTP at all."""
    known = _known.setdefault(peer.dask_end, {})
    if known.get(DashboardPlugin.name) == _scheduler_id(peer):
        return
    if "dashboard" in (await peer.call("identity", n_workers=0))["services"]:
        await install(peer, DashboardPlugin, dashboard)
    known[DashboardPlugin.name] = _scheduler_id(peer)


async def install(peer: Peer, kind: type[Any], *packages: ModuleType) -> None:
    """Register a plug-in where the scheduler has none; sent once a client or Dask worker (up to 70 kB).

    Parameters
    ----------
    kind
        A ``SchedulerPlugin`` with a name of its own.
    packages
        All code that it needs there, except for the standard library and ``distributed``.
    """
    scheduler_id = _scheduler_id(peer)
    known = _known.setdefault(peer.dask_end, {})
    if known.get(kind.name) == scheduler_id:
        return
    plugin = dumps(ByValue(kind(), *packages, zipped=True))
    await peer.call("register_scheduler_plugin", plugin=plugin, name=kind.name, idempotent=True)
    known[kind.name] = scheduler_id


def _scheduler_id(peer: Peer) -> str:
    return str(peer.dask_end.scheduler_info().get("id")) if peer.is_client else ""
