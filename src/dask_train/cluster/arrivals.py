"""Dask workers that are yet to come, as those of a batch queue are for minutes."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from distributed import Client

from dask_train.cluster.devices import Gpus, ask_offers, count_devices
from dask_train.cluster.peer import POLL_S, Peer
from dask_train.cluster.plugin import ensure_plugin
from dask_train.config import Deadlines
from dask_train.errors import PlacementError
from dask_train.run.bounds import WorkerBounds


def default_workers(client: Client, on: Sequence[str] | None) -> int:
    """Return how many workers a run has that names no number: one for each Dask worker, once there is any.

    Raises
    ------
    PlacementError
        None has come within ``train.placement.timeout``.
    ValueError
        The client is asynchronous, so that they can't be counted before the call returns.
    """
    return len(on) if on is not None else max(1, len(_present(client, on)))


def default_fit_workers(client: Client, on: Sequence[str] | None, gpus: Gpus = None) -> int:
    """Count the workers that train one model together where no number is named: one per host, with all of its cores.

    With ``gpus`` there is one for each device that these give. On the cores of one host that is faster than one a Dask
    worker, for small models and large ones, with TensorFlow and torch, and about as fast with JAX
    (``benchmarks/backends.py``, ``benchmarks/step.py``); and so it is for boosted trees (``benchmarks/trees.py``).
    Where ``gpus`` is None there is one for each Dask worker if these have a GPU each.

    Raises
    ------
    PlacementError, ValueError
        As of :func:`default_workers`.
    """
    workers = _present(client, on)
    num_hosts = len({worker["host"] for worker in workers})
    if gpus is not None:
        offers = {} if gpus == 0 else Peer(client).run(ask_offers, Peer(client), None if on is None else list(on))
        return count_devices(offers.values(), gpus) or max(1, num_hosts)
    has_devices = any("gpu" in worker or "GPU" in worker["resources"] for worker in workers)
    return max(1, len(workers if on is None else on)) if has_devices or not workers else num_hosts


def followed_workers(
    client: Client,
    on: Sequence[str] | None,
    needs: Mapping[str, float],
    bounds: WorkerBounds,
    *,
    on_one_host: bool,
    beside: int = 0,
) -> int:
    """Count the workers with which a run begins whose number follows the Dask workers.

    That is one for each Dask worker that has room now, within the bounds, if they are to be ``on_one_host`` of the one
    with most of these; and fewer where ``beside`` other roles need threads of them. It is the least number where the
    client is asynchronous, so that they can't be counted before the call returns.

    Raises
    ------
    PlacementError
        No Dask worker has come within ``train.placement.timeout``.
    """
    peer = Peer(client)
    if peer.asynchronous:
        return bounds.low
    if on is None:
        wait_for_first(peer)
    places = {"needs": dict(needs), "on_one_host": on_one_host, "beside": beside}
    return bounds.nearest(peer.run(_room, peer, {"on": None if on is None else list(on), **places}))


async def _room(peer: Peer, places: Mapping[str, Any]) -> int:
    await ensure_plugin(peer)
    answer = await peer.ask("train_run_room", run="", places=places, known=-1, timeout_s=0.0)
    return int(answer["count"])


def _present(client: Client, on: Sequence[str] | None) -> list[dict[str, Any]]:
    """Return what the scheduler says of the Dask workers that may be chosen; of all, it is waited for the first one."""
    peer = Peer(client)
    if peer.asynchronous:
        raise ValueError(
            "How many workers there are to be is not said, and this client is asynchronous: it can't count the Dask "
            "workers before the call returns. Pass their number: workers=, or roles={'worker': ...} to train."
        )
    if on is None:
        wait_for_first(peer)
    workers = peer.run(peer.workers)
    return [worker for address, worker in workers.items() if on is None or address in on]


def wait_for_first(peer: Peer) -> None:
    """Wait until the cluster has a Dask worker.

    Raises
    ------
    PlacementError
        None has come within ``train.placement.timeout``.
    """
    peer.run(_first, peer, Deadlines.from_dask_config().placement_s)


async def _first(peer: Peer, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    wanted = None
    await ensure_plugin(peer)
    left_s = 0.0  # at first one only looks
    try:
        while not (await peer.ask("train_workers_came", timeout_s=left_s))["some"]:
            if wanted is None:  # an adaptive cluster starts Dask workers for tasks
                wanted = peer.dask_end.submit(len, (), key=f"train-first-worker-{uuid.uuid4().hex}")
            left_s = min(POLL_S, deadline - time.monotonic())
            if left_s <= 0:
                raise PlacementError(
                    f"No Dask worker has come within {timeout_s:g} s.",
                    "The cluster has none, or they still wait in a batch queue.",
                    "Start some, or raise train.placement.timeout to wait for longer.",
                )
    finally:
        if wanted is not None:
            wanted.release()  # the error's traceback holds it, and the cluster would start a Dask worker for nobody
