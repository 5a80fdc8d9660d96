"""The metrics of runs on the scheduler's ``/metrics``, for Prometheus.

Names and units: https://prometheus.io/docs/practices/naming/. No run is a label: there may be any number of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import accumulate
from typing import Any

from .records import LAUNCH_BUCKETS_S, Records

# All that may come: a phase in which nothing is has the value 0, so that graphs and alerts see it end.
RUN_PHASES = ("waiting for room", "launching", "running", "completing", "stopping", "restarting", "ending")
ROLE_PHASES = (
    "waiting for room",
    "starting",
    "ready",
    "meeting its peers",
    "running",
    "returned",
    "being killed",
    "gone",
)
# The classes of a ledger.
LEDGER = ("read", "trained", "repeated", "dropped")


class MetricsCollector:
    """What ``prometheus_client`` asks when the scheduler is scraped.

    Parameters
    ----------
    records
        What was heard of runs.
    namespace
        What names begin with: Dask's ``distributed.dashboard.prometheus.namespace``.
    """

    def __init__(self, records: Records, namespace: str) -> None:
        self.records = records
        self._prefix = f"{namespace}_train_" if namespace else "train_"

    def register(self) -> None:
        """Let this process' scrapes have the metrics; another scheduler in it may have them already."""
        from prometheus_client import REGISTRY

        try:
            REGISTRY.register(self)
        except ValueError:  # the first scheduler of a process is the one that answers, as in distributed
            return

    def unregister(self) -> None:
        """Leave the process' registry."""
        from prometheus_client import REGISTRY

        try:
            REGISTRY.unregister(self)
        except KeyError:
            return

    def collect(self) -> Iterator[Any]:
        """Yield all metrics as they are now."""
        yield from self._gauges()
        yield from self._counters()
        yield self._launches()

    def _gauges(self) -> Iterator[Any]:
        from prometheus_client.core import GaugeMetricFamily

        going_on = list(self.records.known.by_id.values())
        phases = Counter(_label(run.summary.get("phase", "waiting for room")) for run in going_on)
        runs = GaugeMetricFamily(self._prefix + "runs", "Runs that have not ended, by phase", labels=["phase"])
        for phase in map(_label, RUN_PHASES):
            runs.add_metric([phase], phases[phase])
        yield runs
        places: Counter[tuple[str, str]] = Counter()
        for run in going_on:
            for role, _, phase, *_ in run.summary.get("roles", ()):
                places[role, _label(phase)] += 1
        roles = GaugeMetricFamily(
            self._prefix + "roles", "Roles of runs that have not ended, by name and phase", labels=["role", "phase"]
        )
        for role in sorted({role for role, _ in places}):
            for phase in map(_label, ROLE_PHASES):
                roles.add_metric([role, phase], places[role, phase])
        yield roles
        waiting = self.records.waiting()
        name, text = self._prefix + "queued_runs", "Runs that wait for room"
        yield GaugeMetricFamily(name, text, value=len(waiting))
        name, text = self._prefix + "queued_roles", "Roles that wait for room"
        yield GaugeMetricFamily(name, text, value=sum(len(request.roles) for request in waiting))

    def _counters(self) -> Iterator[Any]:
        from prometheus_client.core import CounterMetricFamily

        totals = {
            "runs_started": ("Runs that were asked for", self.records.num_started),
            "restarts": ("Restarts of roles after losses or exceptions", self.records.num_restarts),
            "scores": ("Reports of roles", self.records.num_scores),
        }
        for name, (text, value) in totals.items():
            yield CounterMetricFamily(self._prefix + name, text, value=value)
        ended = CounterMetricFamily(self._prefix + "runs_ended", "Runs that are over, by ending", labels=["ending"])
        for ending in sorted({"ok", *self.records.num_ended}):
            ended.add_metric([ending.replace(" ", "_")], self.records.num_ended[ending])
        yield ended
        rows = CounterMetricFamily(
            self._prefix + "rows", "Rows of runs that are over, by class of their ledgers", labels=["class"]
        )
        for name in LEDGER:
            rows.add_metric([name], self.records.num_rows[name])
        yield rows
        yield self._seconds()
        batches = CounterMetricFamily(self._prefix + "batches", "Batches that roles have taken", labels=["role"])
        for role, count in sorted(self.records.num_batches.items()):
            batches.add_metric([role], count)
        yield batches

    def _seconds(self) -> Any:
        from prometheus_client.core import CounterMetricFamily

        family = CounterMetricFamily(
            self._prefix + "role_seconds",
            "What the time of roles has gone to, over all runs",
            labels=["role", "rank", "activity"],
        )
        for (role, rank, activity), seconds in sorted(self.records.seconds.items()):
            family.add_metric([role, str(rank), activity], seconds)
        return family

    def _launches(self) -> Any:
        from prometheus_client.core import HistogramMetricFamily

        bounds = [*(str(bound) for bound in LAUNCH_BUCKETS_S), "+Inf"]
        counts = accumulate(self.records.launches)
        return HistogramMetricFamily(
            self._prefix + "launch_seconds",
            "From the room for all roles of a run until all run",
            buckets=list(zip(bounds, counts, strict=True)),
            sum_value=self.records.launches_s,
        )


def _label(phase: str) -> str:
    return phase.replace(" ", "_")
