"""Brings our code to a scheduler, or a Dask worker, that may have no dask-train installed."""

from __future__ import annotations

import threading
from types import ModuleType
from typing import Any
from weakref import WeakKeyDictionary

import cloudpickle  # type: ignore[import-untyped]
from distributed.protocol.pickle import dumps

from dask_train.cluster import on_scheduler
from dask_train.cluster.on_scheduler.plugin import TrainPlugin
from dask_train.cluster.peer import Peer

_registering = threading.Lock()  # cloudpickle's list of such modules is one for the process


class ByValue:
    """Pickles as ``content`` with the code of ``module`` inside, and unpickles to a copy of ``content``.

    The side that unpickles needs cloudpickle, which Dask brings, and what the module itself imports.
    """

    def __init__(self, content: Any, module: ModuleType) -> None:
        with _registering:
            cloudpickle.register_pickle_by_value(module)
            try:
                self._pickled = cloudpickle.dumps(content)
                self.__name__ = getattr(content, "__name__", type(content).__name__)  # Dask names tasks after it
            finally:
                cloudpickle.unregister_pickle_by_value(module)

    def __reduce__(self) -> tuple[Any, tuple[bytes]]:
        return cloudpickle.loads, (self._pickled,)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call what unpickling gives."""
        return cloudpickle.loads(self._pickled)(*args, **kwargs)


# The scheduler's own id beside each client: after a scheduler was started again, its clients come back to it.
_know_it: WeakKeyDictionary[Any, str] = WeakKeyDictionary()


async def ensure_plugin(peer: Peer) -> None:
    """Register our plug-in where the scheduler has none; sent once a client or Dask worker (about 25 kB)."""
    scheduler_id = str(peer.dask_end.scheduler_info().get("id")) if peer.is_client else ""
    if _know_it.get(peer.dask_end) == scheduler_id:
        return
    await peer.call(
        "register_scheduler_plugin",
        plugin=dumps(ByValue(TrainPlugin(), on_scheduler)),
        name=TrainPlugin.name,
        idempotent=True,
    )
    _know_it[peer.dask_end] = scheduler_id
