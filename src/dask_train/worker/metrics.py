"""What a Dask worker reports of this library: on its ``/metrics``, and to the scheduler with its heartbeats."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from typing import Any

import dask.config
from distributed import Worker

from dask_train.cluster.worker_plugin import OwnPlugin
from dask_train.data.pool import process_pool

# Under this name the scheduler finds the numbers among a Dask worker's metrics: ``dask_train.dashboard.workers``.
HEARTBEAT = "dask-train"
GAUGES = {
    "segments_bytes": "Shared memory that the data sets of runs take",
    "model_processes": "Processes that predict",
    "template_processes": "Processes that have imported a framework, of which others are forked",
}
COUNTERS = {
    "predicted_blocks": "Blocks that model processes have predicted",
    "predicted_rows": "Rows that model processes have predicted",
}


class WorkerMetrics(OwnPlugin):
    """The numbers of all plug-ins of ours on a Dask worker.

    Of several Dask workers in one process the first answers to Prometheus, as in distributed.
    """

    name = "dask-train-metrics"

    def __init__(self, dask_worker: Worker) -> None:
        self._worker = dask_worker
        namespace = dask.config.get("distributed.dashboard.prometheus.namespace")
        self._prefix = f"{namespace}_train_" if namespace else "train_"
        dask_worker.loop.add_callback(self._begin)

    def _begin(self) -> None:
        """On the event loop, which may just go through these metrics in a heartbeat."""
        self._worker.metrics[HEARTBEAT] = lambda _: self.all_numbers()
        if find_spec("prometheus_client") is not None:
            from prometheus_client import REGISTRY

            with suppress(ValueError):
                REGISTRY.register(self)

    def teardown(self, worker: Worker) -> None:  # noqa: ARG002 - as Dask calls it
        """Leave the process' registry, with the Dask worker."""
        if find_spec("prometheus_client") is not None:
            from prometheus_client import REGISTRY

            with suppress(KeyError):
                REGISTRY.unregister(self)

    def numbers(self) -> dict[str, float]:
        """Return what the process' segments take."""
        return {"segments_bytes": process_pool().used_bytes}

    def all_numbers(self) -> dict[str, float]:
        """Return the numbers of all plug-ins of ours; 0 of those that are not there yet."""
        numbers = dict.fromkeys((*GAUGES, *COUNTERS), 0.0)
        for plugin in list(self._worker.plugins.values()):
            if isinstance(plugin, OwnPlugin):
                numbers.update(plugin.numbers())
        return numbers

    def collect(self) -> Iterator[Any]:
        """Yield what ``prometheus_client`` asks when the Dask worker is scraped."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        numbers = self.all_numbers()
        for name, text in GAUGES.items():
            yield GaugeMetricFamily(self._prefix + name, text, value=numbers[name])
        for name, text in COUNTERS.items():
            yield CounterMetricFamily(self._prefix + name, text, value=numbers[name])
