"""The plug-in that adds the page and the metrics to a scheduler; it owns neither runs nor what is shown."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import dask
from distributed.diagnostics.plugin import SchedulerPlugin

from .metrics import MetricsCollector
from .records import Records, logger
from .routes import add_pages

# The name of the plug-in for runs, which comes first: ``dask_train.scheduler.placement_queue.PLUGIN``.
_OF_RUNS = "dask-train"


class DashboardPlugin(SchedulerPlugin):
    """The page of runs, and their metrics, where the scheduler's process has what they need."""

    name = "dask-train-dashboard"
    idempotent = True

    def __init__(self) -> None:
        self._metrics: MetricsCollector | None = None

    def start(self, scheduler: Any) -> None:
        try:
            self._start(scheduler)
        except Exception:  # another version of bokeh, of Dask, of our other plug-in: runs continue without a page
            logger.exception("There is no page of runs on this scheduler's dashboard.")

    def _start(self, scheduler: Any) -> None:
        records = Records(scheduler.plugins[_OF_RUNS].run_requests)
        if find_spec("prometheus_client") is not None:
            self._metrics = MetricsCollector(records, dask.config.get("distributed.dashboard.prometheus.namespace"))
            self._metrics.register()
        if find_spec("bokeh") is not None:
            add_pages(scheduler, records)

    async def before_close(self) -> None:
        if self._metrics is not None:
            self._metrics.unregister()
