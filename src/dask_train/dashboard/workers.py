"""What Dask workers do for this library besides runs: predictions, templates, shared memory. No bokeh here."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

from dask.utils import format_bytes

from .tables import columns_of, host_of

# Under this name a Dask worker tells its numbers with its heartbeats: ``dask_train.worker.metrics``.
HEARTBEAT = "dask-train"
WORKER_COLUMNS = ("address", "host", "model processes", "blocks", "rows", "rows/s", "templates", "shared memory")
PREDICTION_COLUMNS = ("prediction", "waiting", "running", "done", "failed", "seconds a block")
# What the tasks of predictions are called: of arrays, and of frames.
PREDICTIONS = ("predict", "frame_block")
# Over how many seconds a rate is taken.
RATE_S = 20.0


class Rates:
    """Rows a second by Dask worker, from their heartbeats of the last seconds."""

    def __init__(self) -> None:
        self._samples: dict[str, deque[tuple[float, float]]] = {}

    def look(self, workers: Iterable[Any], now: float) -> None:
        """Take over the last reports of Dask workers, as the scheduler knows them."""
        there = {ws.address: ws.metrics.get(HEARTBEAT, {}).get("predicted_rows", 0.0) for ws in workers}
        self._samples = {address: samples for address, samples in self._samples.items() if address in there}
        for address, rows in there.items():
            samples = self._samples.setdefault(address, deque())
            samples.append((now, rows))
            while len(samples) > 2 and now - samples[1][0] >= RATE_S:
                samples.popleft()

    def of(self, address: str) -> float:
        """Return rows a second."""
        samples = self._samples.get(address)
        if not samples or samples[-1][0] <= samples[0][0]:
            return 0.0
        return (samples[-1][1] - samples[0][1]) / (samples[-1][0] - samples[0][0])


def workers_table(workers: Iterable[Any], rates: Rates) -> dict[str, list[Any]]:
    """Return what each Dask worker tells, those aside that have nothing to do with this library."""
    rows = []
    for ws in workers:
        heartbeat = ws.metrics.get(HEARTBEAT)
        if heartbeat:
            rows.append(
                (
                    ws.address,
                    host_of(ws.address),
                    int(heartbeat["model_processes"]),
                    int(heartbeat["predicted_blocks"]),
                    f"{int(heartbeat['predicted_rows']):,}",
                    f"{rates.of(ws.address):.3g}" if heartbeat["predicted_rows"] else "",
                    int(heartbeat["template_processes"]),
                    format_bytes(heartbeat["segments_bytes"]),
                )
            )
    return columns_of(WORKER_COLUMNS, rows)


def predictions_table(groups: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return the predictions whose tasks the scheduler has, the newest first, from its groups of tasks."""
    rows = []
    for name, group in groups.items():
        if not str(name).startswith(tuple(f"{prefix}-" for prefix in PREDICTIONS)):
            continue
        states = group.states
        done = states.get("memory", 0) + states.get("forgotten", 0)
        waiting = sum(states.get(state, 0) for state in ("released", "waiting", "queued", "no-worker"))
        took = f"{group.duration / done:.3g}" if done else ""
        rows.append((str(name), waiting, states.get("processing", 0), done, states.get("erred", 0), took))
    return columns_of(PREDICTION_COLUMNS, rows[::-1])
