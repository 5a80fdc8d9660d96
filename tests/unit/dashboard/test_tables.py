"""What the page shows of runs."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from dask_train.dashboard.tables import (
    along,
    chart,
    chart_names,
    default_run,
    duration,
    host_of,
    last_scores,
    rate_text,
    roles_by_host,
    roles_table,
    runs_table,
    waiting_table,
    words_on,
)
from dask_train.dashboard.times import Usage
from dask_train.dashboard.traces import Trace
from dask_train.scheduler.runs import KnownRun

RUNNING = {
    "phase": "running",
    "roles": [["worker", 0, "running", 0, "tcp://h:1", 7, "", 3], ["worker", 1, "running", 0, "tcp://h:1", 7, "", 4]],
}


def a_run(name="r", ended=0.0, **summary):
    run = KnownRun(name, "me", {"roles": {"worker": 2}}, started=100.0, ended=ended)
    run.summary = {**RUNNING, **summary} if summary else {}
    return run


def test_runs_now_and_before():
    trace = Trace(num_restarts=2)
    for now, batches in ((150.0, 0), (155.0, 10)):
        trace.summary({"roles": [["worker", 0, "running", 0, "tcp://h:1", 7, "", batches]]}, now=now)
    before = a_run("before", ended=161.0, outcome="DataError: no rows")
    table = runs_table([a_run("now", num_restarts=2), before, a_run("asked")], {"now": trace}, now=155.0)
    assert table["run"] == ["now", "before", "asked"]
    assert table["phase"] == ["running", "DataError: no rows", "starting"]
    assert table["time"] == ["55 s", "1:01 min", "55 s"]
    assert table["roles"] == ["h: 2 worker", "h: 2 worker", "2 worker"]
    assert table["batches/s"] == ["2", "", ""]
    assert table["restarts"] == [2, 0, 0]
    assert {len(column) for column in table.values()} == {3}


def test_roles_of_a_run():
    usage = Usage()
    for now, rows, cpu_s in ((100.0, 0, 1.0), (104.0, 8000, 7.0)):
        told = {"steps": rows // 800, "rows": rows, "memory_bytes": 3 << 20, "cpu_s": cpu_s}
        usage.tell(("worker", 1, 0), told, now)
    table = roles_table(a_run(phase="running"), usage, now=105.0)
    assert (table["role"], table["batches"], table["host"]) == (["worker 0", "worker 1"], [3, 4], ["h", "h"])
    assert (table["rows"], table["rows/s"], table["batches/s"]) == (["", "8,000"], ["", "2,000"], ["", "2.5"])
    assert (table["memory"], table["CPU"]) == (["", "3.00 MiB"], ["", "150%"])
    over = roles_table(a_run(phase="running", ended=105.0), usage, now=105.0)
    assert (over["rows"], over["rows/s"], over["memory"], over["CPU"]) == (["", "8,000"], *[["", ""]] * 3)
    assert roles_table(None, {}, now=105.0) == {name: [] for name in table}


def test_numbers_as_texts():
    assert [rate_text(rate) for rate in (0.0, 0.25, 12.3456, 12_345.6)] == ["", "0.25", "12.3", "12,346"]


def test_hosts_without_room_and_beyond_number():
    run = a_run(phase="placing")
    run.summary["roles"] = [["worker", n, "", 0, f"tcp://10.0.0.{n}:1" if n else "", 0, "", 0] for n in range(9)]
    assert roles_by_host(run).startswith("no room yet: 1 worker; 10.0.0.1: 1 worker; ")
    assert roles_by_host(run).endswith("10.0.0.5: 1 worker; 3 more hosts")


def test_last_scores_are_of_the_first_rank():
    score = {"loss": 0.123456, "note": "ok", "role": "worker", "rank": 0, "attempt": 0, "time": 1.0}
    run = a_run(last_scores=[["worker", 1, {"loss": 9.0}], ["worker", 0, score]])
    assert last_scores(run) == "loss 0.1235, note ok (worker 0)"
    assert last_scores(a_run(phase="running")) == ""


def test_who_waits_and_for_what():
    request = SimpleNamespace(run=a_run(), roles=[(("worker", 0), {}), (("ps", 0), {})], asked=90.0)
    table = waiting_table([request], lambda asked: f"{asked.run.id} needs 2 threads", now=100.0)
    assert table == {"run": ["r"], "time": ["10 s"], "roles": ["1 worker, 1 ps"], "why": ["r needs 2 threads"]}


def test_words_that_no_cell_has_room_for():
    run = a_run(ended=1.0, losses=["worker 0 was lost."], outcome="RoleLostError: gone")
    assert words_on(run, "") == "Attempt 0: worker 0 was lost. It is over: RoleLostError: gone"
    assert words_on(a_run(phase="x"), "no threads") == "Waits for room: no threads"


def test_validation_and_earlier_attempts_are_on_the_chart_of_a_score():
    trace = Trace()
    for attempt, rank in ((0, 0), (0, 1), (1, 0)):
        trace.score({"loss": 1.0, "val_loss": 2.0, "epoch": 0, "role": "worker", "rank": rank, "attempt": attempt})
    trace.score({"speed": 3.0, "role": "worker", "rank": 0, "attempt": 1})
    assert chart_names(trace) == ["loss", "speed"]
    lines = chart(trace, "loss")
    assert lines["dash"] == ["solid", "dashed"] * 3
    assert lines["alpha"] == [0.25, 0.25, 0.9, 0.9, 0.9, 0.9]
    assert len(set(lines["colour"])) == 2, "one a role"
    assert lines["label"][4:] == ["loss, worker 0, attempt 1", "val_loss, worker 0, attempt 1"]
    assert (along(trace, "loss"), along(trace, "speed")) == ("epoch", "report")
    lines["xs"][0].append(5.0)
    assert chart(trace, "loss")["xs"][0] == [0.0], "a table is a copy: who compares two sees what is new"


def test_the_run_that_is_shown():
    trace = Trace()
    trace.score({"loss": 1.0, "role": "worker", "rank": 0, "attempt": 0})
    waits, trains, older, over = a_run("waits"), a_run("trains"), a_run("older"), a_run("over", ended=1.0)
    traces = {"trains": trace, "older": trace, "over": trace}
    assert default_run([waits, trains, older, over], traces) is trains
    assert default_run([waits, over], traces) is waits
    assert default_run([over], traces) is over
    assert default_run([], {}) is None


@pytest.mark.parametrize(
    ("seconds", "text"), [(-1, "0 s"), (59.9, "59 s"), (60, "1:00 min"), (3599, "59:59 min"), (7209, "2:00:09 h")]
)
def test_durations(seconds, text):
    assert duration(seconds) == text


def test_hosts():
    assert [host_of(a) for a in ("tls://h:1", "tcp://[::1]:80", "")] == ["h", "::1", ""]
