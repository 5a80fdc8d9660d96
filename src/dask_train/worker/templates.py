"""The template processes that one Dask worker uses, and the start of its child processes."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future

from distributed import Worker

from dask_train.cluster.worker_plugin import OwnPlugin
from dask_train.process.launch import Process
from dask_train.process.templates import ProcessStart, Templates
from dask_train.worker.metrics import WorkerMetrics


class TemplateProcesses(OwnPlugin):
    """A plug-in of the Dask worker that holds its templates; those that no other shares end when it closes."""

    name = "dask-train-templates"

    def __init__(self, dask_worker: Worker) -> None:
        self._worker, self._loop = dask_worker, dask_worker.loop.asyncio_loop
        self._templates = Templates(dask_worker.scheduler.address, dask_worker.local_directory)

    def teardown(self, worker: Worker) -> None:  # noqa: ARG002 - as Dask calls it
        """Leave all, with the Dask worker."""
        self._templates.close()

    def start(self, start: ProcessStart) -> Future[Process]:
        """Start a process; from any thread but the event loop's, which must not be waited for there.

        It is the event loop that starts it, since a parent-death signal comes with the end of the thread that forked.
        """
        WorkerMetrics.of(self._worker)
        return asyncio.run_coroutine_threadsafe(self._templates.start(start), self._loop)

    def numbers(self) -> dict[str, float]:
        """Return how many templates there are."""
        return {"template_processes": len(self.pids())}

    def pids(self) -> dict[int, str]:
        """Return the processes of its templates, and what each has imported."""
        return self._templates.pids()

    def idle_s(self) -> dict[int, float]:
        """For how long each of them has been unused, in seconds; on the event loop."""
        return self._templates.idle_s()
