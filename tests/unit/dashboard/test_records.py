"""What the page and the metrics hear of runs, from the plug-in for runs."""

from __future__ import annotations

import asyncio

from dask_train.dashboard.records import FAULTS, ending_of
from dask_train.run.commands import Verdict
from dask_train.scheduler.runs import KEPT_RECORDS


def ask(plug, handler, **message):
    return asyncio.run(getattr(plug.run_requests, f"train_run_{handler}")(**message))


def open_run(plug, run):
    ask(plug, "open", run=run, client="me", info={}, lease_s=60.0, keys=[])


def test_a_run_from_its_beginning_to_its_end(plug, records, reported, summary_of):
    open_run(plug, "r")
    asked = {"run": "r", "request": "q", "roles": [["worker", 0, {}]], "on": None, "timeout_s": 0.0}
    assert ask(plug, "place", **asked)["status"] == "OK"
    ask(plug, "agent", run="r", agent="g", address="a")
    ask(plug, "note", run="r", summary=summary_of("running", (0, 0, 3)))
    told = {"run": "r", "agent": "g", "output": [], "timeout_s": 0.0}
    ask(plug, "tell", number=0, events=[reported({"loss": 2.0})], **told)
    ask(plug, "tell", number=0, events=[reported({"loss": 2.0}), reported({"loss": 1.0})], **told)  # the first again
    ask(plug, "end", run="r", summary=summary_of("over", (0, 0, 5), outcome="its training roles have returned"))
    (curve,) = records.traces["r"].curves.values()
    assert curve.y == [2.0, 1.0]
    counts = (records.num_started, records.num_scores, records.num_batches["worker"], sum(records.launches))
    assert counts == (1, 2, 5, 1)
    assert records.num_ended == {"ok": 1}
    assert [run.id for run in records.runs()] == ["r"]


def test_who_waits_is_seen_in_line(plug, records):
    for run in ("first", "second"):
        open_run(plug, run)
        asked = {"run": run, "request": "q", "roles": [["worker", 0, {}]], "on": None, "timeout_s": 0.0}
        ask(plug, "place", **asked)
    (request,) = records.waiting()
    assert request.run.id == "second"
    assert "carries 1 role of first" in records.placement_queue.why(request)


def test_a_run_that_is_on_record_no_more_is_forgotten(plug, records, summary_of):
    for number in range(KEPT_RECORDS + 2):
        open_run(plug, f"r{number}")
        ask(plug, "end", run=f"r{number}", summary=summary_of("over", outcome="cancelled"))
    open_run(plug, "now")
    assert set(records.traces) == {run.id for run in records.runs()}
    assert len(records.traces) == KEPT_RECORDS + 1
    assert records.num_ended == {"cancelled": KEPT_RECORDS + 2}, "counters go on"


def test_what_can_not_be_read_ends_no_run(plug, records, caplog):
    open_run(plug, "r")
    for _ in range(2):
        ask(plug, "note", run="r", summary={"roles": ["of another version"]})
    ask(plug, "end", run="r", summary={"phase": "over"})
    assert len(caplog.records) == 1
    assert plug.run_requests.runs.by_id == {}


def test_endings_are_those_that_runs_have():
    assert {str(verdict) for verdict in Verdict if verdict is not Verdict.OK} == FAULTS
    outcomes = {
        "StalledError: 3 s": "StalledError",
        "its client left": "client lost",
        "nothing was heard of its client for 3 s (train.client.timeout)": "client lost",
        "cancelled": "cancelled",
        "loss: 0.1 reached": "ok",
    }
    assert {outcome: ending_of({"outcome": outcome}) for outcome in outcomes} == outcomes
