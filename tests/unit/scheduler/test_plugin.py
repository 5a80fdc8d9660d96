"""What the plug-in for runs passes on of what the scheduler tells."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dask_train.scheduler.plugin import TrainPlugin
from dask_train.scheduler.run_requests import RunRequests


@pytest.fixture
def plug(a_scheduler) -> TrainPlugin:
    """The plug-in on a scheduler with one Dask worker."""
    return a_scheduler(a=1).install(TrainPlugin())


def place(plug: TrainPlugin, run: str) -> dict[str, Any]:
    async def ask() -> dict[str, Any]:
        await plug.run_requests.train_run_open(run=run, client="me", info={}, lease_s=60.0, keys=[])
        return await plug.run_requests.train_run_place(
            run=run, request=run, roles=[["worker", 0, {}]], on=None, timeout_s=0.0
        )

    return asyncio.run(ask())


def test_its_questions_are_answered(plug):
    names = {name for name in dir(RunRequests) if name.startswith("train_")}
    assert set(plug.run_requests.scheduler.handlers) >= names >= {"train_runs", "train_run_place"}


def test_what_a_run_has_is_kept_from_others(plug):
    scheduler = plug.run_requests.scheduler
    assert plug.why_taken("a") == ""
    assert place(plug, "r1")["status"] == "OK"
    assert plug.why_taken("a") == "carries roles of a run"
    assert plug.valid_workers_downscaling(scheduler, list(scheduler.workers.values())) == []
    plug.remove_client(client="another")
    assert plug.why_taken("a")
    plug.remove_client(client="me")
    assert (plug.why_taken("a"), plug.run_requests.runs.by_id) == ("", {})


def test_status_of_dask_workers_that_leave_in_order(plug):
    plug.log_event("a", {"action": "worker-status-change", "status": "closing_gracefully"})
    plug.log_event("all", {"action": "remove-worker"})
    plug.log_event("a", "what a user logs")
    assert plug.run_requests._leaving == {"a"}
    plug.log_event("a", {"action": "worker-status-change", "status": "running"})
    assert plug.run_requests._leaving == set()


def test_dask_workers_that_come_and_go(plug):
    scheduler = plug.run_requests.scheduler
    place(plug, "r1")
    assert place(plug, "r2")["status"] == "waiting"
    scheduler.add("b", 1)
    plug.add_worker(worker="b")
    assert plug.why_taken("b"), "the run that waited is there"
    del scheduler.workers["a"]
    plug.remove_worker(worker="a")
    assert plug.run_requests.runs.by_id["r1"].events.messages[0][0] == "WorkerLost"
