"""Whether a run's data fits into the cluster's memory; asked before anything is computed."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dask.utils import format_bytes
from distributed import Worker
from distributed.comm import get_address_host

from dask_train.cluster.on_worker.memory_limit import bytes_left
from dask_train.cluster.peer import Peer
from dask_train.config import memory_limit
from dask_train.data.pool import process_pool
from dask_train.errors import DataError


@dataclass(frozen=True, kw_only=True)
class Room:
    """What one Dask worker can take.

    Attributes
    ----------
    bytes
        Of results, before it spills; as ``train.memory.limit`` says, where it is set.
    left
        What its container can still take; None without a limit.
    """

    bytes: int
    left: int | None


def room(limit: int | None, dask_worker: Worker) -> Room:
    """What this Dask worker can take; runs there."""
    shared = process_pool().used_bytes  # which no process's own memory shows
    if limit is not None:
        return Room(bytes=max(0, limit - shared), left=None)
    manager = dask_worker.memory_manager
    most = int((manager.memory_limit or 0) * (manager.memory_target_fraction or 1.0))
    used = dask_worker.monitor.get_process_memory()
    room = 1 << 62 if not most else max(0, most - used - shared)
    left = bytes_left()
    return Room(bytes=room, left=None if left is None else left + process_pool().warm_bytes)


async def check_budget(peer: Peer, sizes: Mapping[str, int], num_roles: int, role_bytes: int) -> None:
    """Refuse data that can't fit.

    Parameters
    ----------
    peer
        The client.
    sizes
        Bytes of the data of each role, where known.
    num_roles, role_bytes
        How many role processes there will be, and what one takes for itself.

    Raises
    ------
    DataError
        It is more than what the Dask workers and their containers can take.
    """
    needed = sum(sizes.values())
    limit = memory_limit()
    if not needed:
        return
    rooms: dict[str, Room] = await peer.on_workers(room, limit, on_error="ignore")
    by_host: dict[str, list[Room]] = {}
    for address, each in rooms.items():
        by_host.setdefault(get_address_host(address), []).append(each)
    available = 0
    for of_host in by_host.values():
        left = [each.left for each in of_host if each.left is not None]
        available += min([sum(each.bytes for each in of_host), *left])
    own = num_roles * role_bytes if limit is None else 0
    if needed > max(0, available - own):
        of_roles = f", less {format_bytes(own)} for {num_roles} role processes" if own else ""
        raise DataError(
            f"The run's data takes {format_bytes(needed)} ({_by_role(sizes)}), and {len(rooms)} Dask workers can take "
            f"{format_bytes(available)}{of_roles}.",
            "That is what their memory limits leave before Dask writes results to disk, or what is left of their "
            "containers' limits."
            if limit is None
            else f"train.memory.limit is {format_bytes(limit)} a Dask worker.",
            "Pass streaming=True, use smaller dtypes, free what is persisted, add Dask workers, or set "
            "train.memory.limit.",
        )


def tell_of_second_copies(persisted: Mapping[str, int | None]) -> None:
    """Say which data will lie in memory twice.

    Parameters
    ----------
    persisted
        By role, how many bytes of the user's collection lie in Dask's memory already; None: some do.
    """
    for role, size in persisted.items():
        if size is None or size:
            much = "is persisted" if size is None else f"is persisted ({format_bytes(size)})"
            sys.stderr.write(
                f"dask_train: data[{role!r}] {much}, and its rows are copied into shared memory besides. "
                "dask_train.persist(...) in place of persist() makes that the only copy.\n"
            )


def _by_role(sizes: Mapping[str, Any]) -> str:
    return ", ".join(f"{role}: {format_bytes(size)}" for role, size in sizes.items())
