"""Plug-ins that a Dask worker gets when they are first needed there, and that end with it."""

from __future__ import annotations

import threading
from functools import partial
from typing import Self

from distributed import Worker, WorkerPlugin

_making = threading.Lock()


class OwnPlugin(WorkerPlugin):
    """A plug-in of which each Dask worker has one, by its ``name``; made with the Dask worker."""

    def __init__(self, dask_worker: Worker) -> None:
        """Begin on that Dask worker."""

    def numbers(self) -> dict[str, float]:
        """Return what it shows of the Dask worker; must be cheap."""
        return {}

    @classmethod
    def of(cls, dask_worker: Worker) -> Self:
        """Return the one of a Dask worker; from any thread.

        Dask goes through its plug-ins at each transition of a task, and closes the Dask worker if another thread adds
        one meanwhile. So the event loop adds it, and until then we know it by a registry of our own.
        """
        with _making:
            known = _known(dask_worker)
            plugin = known.get(cls.name) or dask_worker.plugins.get(cls.name)
            if not isinstance(plugin, cls):
                plugin = known[cls.name] = cls(dask_worker)
                dask_worker.loop.add_callback(partial(dask_worker.plugins.__setitem__, cls.name, plugin))
            return plugin


def _known(dask_worker: Worker) -> dict[str, OwnPlugin]:
    if not hasattr(dask_worker, "train_plugins"):
        dask_worker.train_plugins = {}
    known: dict[str, OwnPlugin] = dask_worker.train_plugins
    return known
