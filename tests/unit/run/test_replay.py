"""A run's event log replays to the same commands, here and now, however long ago it was recorded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dask_train.run import events, messages
from dask_train.run.recovery import RecoveryPolicy
from dask_train.run.replay import replay, to_record
from dask_train.run.state import Phase
from dask_train.run.transitions import ACTIONS, ROLE_ACTIONS

# Event logs of runs on real clusters, as Run.event_log wrote them.
RECORDED = sorted((Path(__file__).parent / "recorded").glob("*.jsonl"))


def test_there_are_recorded_runs():
    assert RECORDED


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_a_recorded_run_replays(path):
    compared = replay([json.loads(line) for line in path.read_text().splitlines()])
    for number, (then, now) in enumerate(compared):
        assert now == then, f"event {number} of {path.name}"
    assert compared[-1][1][-1]["is"] == "Finish"


@pytest.mark.parametrize("recovery", [None, RecoveryPolicy(scope="gang", max_restarts=1, retry_errors=True)])
def test_there_and_back(a_run, recovery):
    run = a_run(
        counts={"ps": 1, "worker": 2, "scorer": 1},
        with_data=frozenset({"worker"}),
        agree=True,
        recovery=recovery,
        progress_s=10,
    )
    run.happens(messages.DataProgressed)
    run.happens(events.DataReady)
    for _ in range(2):
        run.placed()
        run.happens(messages.Loaded, "worker/0")
        run.happens(messages.Loaded, "worker/1")
        run.up()
        run.starts()
        run.tick(11)
        run.happens(events.Progressed, "worker/0")
        run.happens(events.Diagnosed, stalled=("worker 1 does not answer",))
        run.fails("worker/1", "E: closed.")
        run.happens(messages.WorkerLost, address="b")
        run.exits("ps/0", "worker/0", "worker/1", "scorer/0")
        if recovery is None:
            break
    assert run.phase is Phase.OVER
    lines = json.loads(json.dumps(to_record(run.first, run.log)))
    compared = replay(lines)
    assert len(compared) == len(run.log)
    assert [now for _, now in compared] == [then for then, _ in compared]
    said = [command["is"] for _, now in compared for command in now]
    assert (said.count("PlaceRoles"), said.count("DiagnoseRoles"), said[-1]) == (
        (0, 1, "Finish") if recovery is None else (1, 2, "Finish")
    )


def test_what_has_changed_since_is_seen(a_run):
    run = a_run(counts={"worker": 1})
    run.running()
    run.returns("worker/0")
    lines = json.loads(json.dumps(to_record(run.first, run.log)))
    lines[0]["plan"]["counts"] = {"worker": 1, "scorer": 1}
    assert [now for _, now in replay(lines)] != [then for then, _ in replay(lines)]


def test_every_kind_of_event_is_found_again(a_run):
    run = a_run().running()
    kinds = [*ACTIONS, *ROLE_ACTIONS]
    assert set(events.DriverEvent.__subclasses__()) < set(kinds)
    texts = dict.fromkeys(("wanted", "why", "change", "error", "cause", "reason", "address", "peer"), "x")
    values = {
        **texts,
        "places": {},
        "pid": 3,
        "number": 0,
        "size": 2,
        "launching": False,
        "waits": True,
        "awaits": True,
        "stalled": ("x",),
        "silent": (("worker", 1),),
    }
    log = []
    for kind in kinds:
        what = kind(**{name: value for name, value in values.items() if name in kind.__dataclass_fields__})
        of = messages.RoleProcess("worker", 0, 0) if kind in ROLE_ACTIONS else None
        log.append((events.Event(1.0, what, of), ()))
    lines = json.loads(json.dumps(to_record(run.first, log)))
    assert [line["event"]["is"] for line in lines[1:]] == [kind.__name__ for kind in kinds]
    assert len(replay(lines)) == len(kinds)
