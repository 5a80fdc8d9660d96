"""The cluster that a search runs on, and how many trials it holds at a time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dask_train.cluster.arrivals import wait_for_first
from dask_train.cluster.peer import Peer
from dask_train.driver.settings import RunSettings
from dask_train.errors import PlacementError

if TYPE_CHECKING:
    from dask_train.cluster.clients import Client


def room_of(peer: Peer, on: Sequence[str] | None, needs: Mapping[str, Any]) -> list[tuple[str, int]]:
    """Host of each Dask worker that may be used, and how many workers of trials its threads and resources hold."""
    return _room(peer.run(peer.workers), on, needs)


def _room(workers: Mapping[str, Any], on: Sequence[str] | None, needs: Mapping[str, Any]) -> list[tuple[str, int]]:
    chosen = workers if on is None else {address: workers[address] for address in on if address in workers}
    room = []
    for worker in chosen.values():
        has = worker.get("resources") or {}
        by_resource = [int(has.get(name, 0) // amount) for name, amount in needs.items() if amount]
        room.append((worker["host"], min([worker["nthreads"], *by_resource])))
    return room


def capacity_of(peer: Peer, on: Sequence[str] | None, needs: Mapping[str, Any]) -> int:
    """Return how many workers of trials the Dask workers hold."""
    return _count(room_of(peer, on, needs))


def _count(room: Sequence[tuple[str, int]]) -> int:
    return sum(count for _, count in room)


def entered(client: Client, on: Sequence[str] | None, needs: Mapping[str, Any], workers: int) -> Peer:
    """Return the cluster, once it has a Dask worker, which can hold a trial.

    Raises
    ------
    ValueError
        The client is asynchronous, so that nothing could be waited for.
    PlacementError
        There is no Dask worker, or no room.
    """
    peer = Peer(client)
    if peer.asynchronous:
        raise ValueError(
            "search waits for trials, and this client is asynchronous. Call it in a thread with a client of its own: "
            "distributed.Client(address)."
        )
    wait_for_first(peer)
    cluster_workers = peer.run(peer.workers)
    check_room(_count(_room(cluster_workers, on, needs)), _count(_room(cluster_workers, on, {})), workers)
    return peer


def check_room(capacity: int, num_threads: int, workers: int) -> None:
    """Check that a trial can be trained at all.

    Raises
    ------
    PlacementError
        The Dask workers that there are can't hold its workers.
    """
    if num_threads > 0 and capacity < workers:  # where there is no Dask worker yet, some may come
        raise PlacementError(
            f"A trial of {workers} workers needs room for {workers}, and the Dask workers that may be used hold "
            f"{capacity}, with {num_threads} threads in all.",
            change="Pass a smaller workers_per_trial or fewer resources, or add Dask workers.",
        )


def runs_on_host(room: Sequence[tuple[str, int]], workers: int, most: int) -> int:
    """Return how many slots will share a host's cores."""
    slots = min(most, sum(count for _, count in room) // workers)
    return max(1, math.ceil(slots / max(1, len({host for host, _ in room}))))


def run_of_trials(run: RunSettings, client: Client, on_host: int) -> RunSettings:
    """Return the settings of the runs that train trials, of those of their search.

    The search keeps its own checkpoints, and writes its own log.
    """
    return replace(
        run,
        client=client,
        runs_on_host=on_host,
        wait=False,
        name="search",
        recovery=None,
        gpus=None,
        checkpoint=None,
        resume=False,
        log=[],
        progress=None,
    )
