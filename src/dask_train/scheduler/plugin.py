"""The plug-in for runs: which of the scheduler's events matter to them."""

from __future__ import annotations

from typing import Any

from distributed.diagnostics.plugin import SchedulerPlugin

from .handlers import register_handlers
from .placement_queue import PLUGIN
from .run_requests import RunRequests


class TrainPlugin(SchedulerPlugin):
    """The runs of a scheduler's clients: their records, messages and places."""

    name = PLUGIN
    idempotent = True

    def start(self, scheduler: Any) -> None:
        self.run_requests = RunRequests(scheduler)
        register_handlers(scheduler, self.run_requests)

    def why_taken(self, address: str) -> str:
        """Return what other plug-ins of ours ask: see ``taken``."""
        return "carries roles of a run" if address in self.run_requests.placement_queue.carrying() else ""

    # What the scheduler tells; it passes itself, and these arguments by name

    def add_worker(self, **_: Any) -> None:
        self.run_requests.worker_came()

    def remove_worker(self, *, worker: str, **_: Any) -> None:
        self.run_requests.worker_left(worker)

    def log_event(self, topic: str, msg: Any) -> None:
        # The only call that a plug-in gets when a Dask worker is retired, or begins to close.
        if isinstance(msg, dict) and msg.get("action") == "worker-status-change":
            self.run_requests.worker_changed(topic, msg["status"])

    def remove_client(self, *, client: str, **_: Any) -> None:
        self.run_requests.client_left(client)

    def transition(self, key: Any, *_: Any, **__: Any) -> None:
        self.run_requests.results.changed(key)

    def valid_workers_downscaling(self, _scheduler: Any, workers: list[Any]) -> list[Any]:
        carrying = self.run_requests.placement_queue.carrying()
        return [ws for ws in workers if ws.address not in carrying]
