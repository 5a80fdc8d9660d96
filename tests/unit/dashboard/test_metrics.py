"""The metrics of runs, as Prometheus reads them."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest

from dask_train.dashboard.metrics import ROLE_PHASES, RUN_PHASES, MetricsCollector
from dask_train.process.messages import Progress, to_plain
from dask_train.run.messages import RoleProcess
from dask_train.run.state import Phase, RolePhase
from dask_train.worker.metrics import COUNTERS, GAUGES

prometheus_client = pytest.importorskip("prometheus_client")


def test_runs_and_roles_by_phase(plug, records, reported, summary_of):
    async def go_on():
        asks = plug.run_requests
        for run in ("first", "second"):
            await asks.train_run_open(run=run, client="me", info={}, lease_s=60.0, keys=[])
            wanted = {"roles": [["worker", 0, {}]], "on": None, "timeout_s": 0.0}
            await asks.train_run_place(run=run, request="q", **wanted)
        await asks.train_run_note(run="first", summary=summary_of("running", (0, 1, 8), num_restarts=1))
        await asks.train_run_note(run="second", summary=summary_of("waiting for room", (0, 0, 0)))
        await asks.train_run_open(run="third", client="me", info={}, lease_s=60.0, keys=[])
        await asks.train_run_end(run="third", summary={"rows": {"read": 32, "trained": 30}})

    asyncio.run(go_on())
    records.on_events(plug.run_requests.runs.by_id["first"], [reported({"loss": 1.0})])
    spent = Progress(steps=1, doing="", moved=True, awaits_client=False, spent={"data": 1.5}, busy_with="computing")
    records.on_events(plug.run_requests.runs.by_id["first"], [to_plain(spent, RoleProcess("worker", 0, 0))])
    registry = prometheus_client.CollectorRegistry()
    registry.register(MetricsCollector(records, "dask"))
    told = {
        "runs": ({"phase": "running"}, 1),
        "roles": ({"phase": "waiting_for_room", "role": "worker"}, 1),
        "queued_runs": ({}, 1),
        "queued_roles": ({}, 1),
        "runs_started_total": ({}, 3),
        "restarts_total": ({}, 1),
        "scores_total": ({}, 1),
        "runs_ended_total": ({"ending": "ok"}, 1),
        "batches_total": ({"role": "worker"}, 8),
        "rows_total": ({"class": "trained"}, 30),
        "role_seconds_total": ({"role": "worker", "rank": "0", "activity": "data"}, 1.5),
        "launch_seconds_count": ({}, 1),
        "launch_seconds_bucket": ({"le": "+Inf"}, 1),
    }
    found = {name: registry.get_sample_value(f"dask_train_{name}", labels) for name, (labels, _) in told.items()}
    assert found == {name: value for name, (_, value) in told.items()}
    assert registry.get_sample_value("dask_train_runs", {"phase": "restarting"}) == 0


def test_documentation_and_grafana_name_what_there_is(records):
    docs = Path(__file__).parents[3] / "docs"
    found = {sample.name for family in MetricsCollector(records, "dask").collect() for sample in family.samples}
    of_workers = {f"dask_train_{name}" for name in GAUGES} | {f"dask_train_{name}_total" for name in COUNTERS}
    found |= of_workers | {"dask_train_roles", "dask_train_batches_total", "dask_train_role_seconds_total"}  # none yet
    queries = [
        at["expr"] for panel in json.loads((docs / "grafana.json").read_text())["panels"] for at in panel["targets"]
    ]
    assert {name for query in queries for name in re.findall(r"dask_train_\w+", query)} <= found
    told = set(re.findall(r"^\| `(dask_train_\w+)`", (docs / "reference" / "metrics.md").read_text(), re.MULTILINE))
    assert told == {name for name in found if "launch_seconds" not in name} | {"dask_train_launch_seconds"}


def test_phases_are_those_that_runs_have():
    assert set(RUN_PHASES) == {str(phase) for phase in Phase} - {"over"}
    assert set(ROLE_PHASES) == {str(phase) for phase in RolePhase}


def test_a_process_tells_of_one_scheduler(records):
    collectors = [MetricsCollector(records, "two"), MetricsCollector(records, "two")]
    for collector in collectors:
        collector.register()
    try:
        text = prometheus_client.generate_latest().decode()
        assert text.count("\ntwo_train_queued_runs ") == 1
    finally:
        for collector in collectors:
            collector.unregister()
    assert "two_train" not in prometheus_client.generate_latest().decode()
