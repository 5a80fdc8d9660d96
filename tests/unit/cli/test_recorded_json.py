"""Records of runs as programs read them."""

from __future__ import annotations

from typing import Any

from dask_train.cli.json_output import run_value, status_value

ROLES = [
    ["worker", 0, "running", 0, "tcp://127.0.0.1:40001", 4103, "waiting for a batch", 1234],
    ["worker", 1, "waiting for room", 1, "", 0, "", 0],
]
SCORE = {"loss": 0.5, "role": "worker", "rank": 0, "attempt": 0, "time": 100.0}


def record(**changes: Any) -> dict[str, Any]:
    summary = {"phase": "running", "roles": ROLES, "num_scores": 7, "last_scores": [["worker", 0, SCORE]]}
    found = {"id": "mine-0a", "started": 40.0, "ended": 0.0, "now": 105.0, "info": {"roles": {"worker": 2}}}
    return {**found, "summary": summary, **changes}


def test_a_run_that_continues():
    assert run_value(record()) == {
        "run": "mine-0a",
        "roles": {"worker": 2},
        "num_alive": 1,
        "started": 40.0,
        "ended": None,
        "seconds": 65.0,
        "phase": "running",
        "waiting": "",
        "num_scores": 7,
        "outcome": "",
    }


def test_a_run_that_is_over_and_one_that_has_told_nothing():
    over = run_value(record(ended=90.0, summary={"outcome": "it was interrupted", "roles": ROLES}))
    assert (over["phase"], over["num_alive"], over["seconds"]) == ("over", 0, 50.0)
    assert (over["ended"], over["outcome"]) == (90.0, "it was interrupted")
    fresh = run_value(record(summary={}, info={}))
    assert (fresh["phase"], fresh["roles"], fresh["num_scores"]) == ("starting", {}, 0)


def test_the_status_has_roles_scores_and_templates():
    probe = {"imports": "torch", "pid": 7, "memory": None, "idle_s": 1.0}
    found = status_value(record(), {"tcp://h:1": [probe]})
    assert found["each_role"][0] == {
        "role": "worker",
        "rank": 0,
        "phase": "running",
        "attempt": 0,
        "worker": "tcp://127.0.0.1:40001",
        "pid": 4103,
        "doing": "waiting for a batch",
        "num_batches": 1234,
    }
    assert (found["last_scores"], found["losses"]) == ([SCORE], [])
    assert found["templates"] == [{"worker": "tcp://h:1", **probe}]
