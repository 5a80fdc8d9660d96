"""Whether a Dask worker can be taken, by roles of a run or by other plug-ins of ours that lease it.

Everyone who takes Dask workers holds the ``MultiLock`` of their addresses meanwhile, as ``xgboost.dask`` does, so that
all exclude each other. A lock doesn't say who holds it, nor that a free Dask worker is unfit. Each
plug-in that knows more has a method ``why_taken(address)``, and needs to know no other plug-in.
"""

from __future__ import annotations

from typing import Any

from dask_train.compat.distributed import request_locks


def lock(scheduler: Any, addresses: list[str], user: str) -> None:
    """Take the ``MultiLock`` of Dask workers that are free, for ``user``."""
    granted = request_locks(_multi_locks(scheduler), addresses, user)
    assert granted, "a free Dask worker's lock was held"


def unlock(scheduler: Any, user: str) -> None:
    """Give back all that ``user`` holds."""
    _multi_locks(scheduler).release(user)


def lock_user(scheduler: Any, address: str) -> str:
    """Return who holds the ``MultiLock`` of a Dask worker; empty if it is free."""
    users = _multi_locks(scheduler).locks.get(address)
    return str(users[0]) if users else ""


def _multi_locks(scheduler: Any) -> Any:
    return scheduler.extensions["multi_locks"]


def why_taken(scheduler: Any, ws: Any, *, asking: str, own: str = "") -> str:
    """Return why a Dask worker can't be taken now, as the end of a sentence about it; empty if it can.

    Parameters
    ----------
    ws
        The scheduler's state of it.
    asking
        The name of the plug-in that asks, which knows about itself.
    own
        Names under which the caller may hold its lock already.
    """
    for name, plugin in scheduler.plugins.items():
        if name != asking and (tell := getattr(plugin, "why_taken", None)) and (why := tell(ws.address)):
            return str(why)
    if lock_user(scheduler, ws.address) not in ("", own):
        return "is locked by another library, such as xgboost.dask"
    if ws.status.name != "running":
        percent = 100 * ws.metrics.get("memory", 0) / ws.memory_limit if ws.memory_limit else 0
        return f"is {ws.status.name} (memory at {percent:.0f}%)"
    return ""
