"""Whether Dask computes something, which may take any time: a run that waits for it is not stalled."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

# A Dask worker that is silent for longer may be frozen, with what it computed last. It tells every few seconds.
HEARD_S = 30.0
_OVER = {"memory", "erred", "released", "forgotten"}


def computes(scheduler: Any, keys: Iterable[Any], now: float) -> bool:
    """Return whether one of these tasks, or one that they need, is executed, or is next on a Dask worker that is busy.

    Parameters
    ----------
    now
        Seconds since the epoch.
    """
    waiting, seen = [scheduler.tasks.get(key) for key in keys], set()
    while waiting:
        task = waiting.pop()
        if task is None or task.state in _OVER or task.key in seen:
            continue
        seen.add(task.key)
        worker = task.processing_on
        if worker is not None and now - worker.last_seen < HEARD_S and _executes(worker):
            return True
        waiting += task.dependencies
    return False


def _executes(worker: Any) -> bool:
    """Whether it executes tasks besides those that have seceded, as agents do, which last as long as their run."""
    return any(task not in worker.long_running for task in worker.executing)
