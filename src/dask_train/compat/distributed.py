"""Private parts of distributed: clients, futures, Dask workers, locks. Made for distributed 2026.3 to 2026.8.

This module also travels by value, to schedulers and Dask workers without dask-train: it imports none of our modules.
"""

from __future__ import annotations

from collections.abc import Awaitable, Coroutine, Mapping, Sequence
from typing import Any

_UNKNOWN: Any = object()


def is_dask_worker_here() -> bool:
    """Return whether this process has a Dask worker.

    Replaces ``Worker._instances``; ``get_worker`` knows of tasks only. Without it a model that can't be opened ends
    the connection between a Dask worker and the scheduler.
    """
    from distributed import Worker

    return bool(Worker._instances)


def cluster_maximum(dask_end: Any) -> float | None:
    """Return the most Dask workers that a client's cluster may have: 0 if it adds none by itself, None if unknown.

    Replaces ``Cluster._adaptive``, which ``Cluster.adapt`` sets, and returns to its caller alone. Without it the first
    run of a cluster that has just become adaptive shares the threads that are there.
    """
    adaptive = getattr(getattr(dask_end, "cluster", None), "_adaptive", _UNKNOWN)
    if adaptive is _UNKNOWN:  # the client has connected to an address, or the cluster is of another kind
        return None
    return 0.0 if adaptive is None or adaptive.periodic_callback is None else float(adaptive.maximum)


def scatter(client: Any, values: Mapping[str, Any], **options: Any) -> Coroutine[Any, Any, dict[str, Any]]:
    """Put values into the memory of Dask workers, on the client's event loop.

    Replaces ``Client._scatter``. ``Client.scatter`` within a task puts values on the task's own Dask worker, whichever
    was asked for.
    """
    putting: Coroutine[Any, Any, dict[str, Any]] = client._scatter(dict(values), **options)
    return putting


def gather(client: Any, futures: Sequence[Any]) -> Coroutine[Any, Any, list[Any]]:
    """Fetch results, on the client's event loop.

    Replaces ``Client._gather``. ``Client.gather`` within a task takes what the task's own Dask worker holds, the
    objects themselves.
    """
    getting: Coroutine[Any, Any, list[Any]] = client._gather(list(futures))
    return getting


def status_known(future: Any, timeout_s: float | None = None) -> Awaitable[Any]:
    """Wait until a future of Dask is done, failed or cancelled, on its client's event loop.

    Replaces ``Future._state``. ``distributed.wait`` raises where a future was cancelled, and does not name it.
    """
    waiting: Awaitable[Any] = future._state.wait(timeout_s)
    return waiting


def request_locks(multi_locks: Any, names: Sequence[str], user: str) -> bool:
    """Take locks of ``MultiLock`` in the scheduler, all at once; return whether all were free.

    Replaces ``MultiLockExtension._request_locks``. Its public ``acquire`` waits for those that are not free, and the
    scheduler would do other things meanwhile.
    """
    return bool(multi_locks._request_locks(list(names), user, len(names)))
