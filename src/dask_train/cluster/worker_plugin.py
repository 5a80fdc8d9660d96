"""Plug-ins that a Dask worker gets when they are first needed there, and that end with it."""

from __future__ import annotations

import threading
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
        """Return the one of a Dask worker; from any thread."""
        with _making:
            plugin = dask_worker.plugins.get(cls.name)
            if not isinstance(plugin, cls):
                plugin = dask_worker.plugins[cls.name] = cls(dask_worker)
            return plugin
