"""How a run from a command line ended, in brief."""

from __future__ import annotations

from dask_train.cli.watched_run import tell_result
from dask_train.data.ledger import balance
from dask_train.driver.result import Result


def test_the_end_of_a_run_in_brief(capsys):
    score = {"loss": 0.123456, "step": 3, "note": "a", "role": "worker", "rank": 1, "attempt": 0, "time": 1.0}
    results = {"ps": [None], "worker": [list(range(10_000))] * 20}
    result = Result(
        results=results, scores=[score] * 1234, attempts=[], ledger=balance({}, {}, {}), stop_reason="", run_id="mine-1"
    )
    tell_result(result, 12.34)
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == [
        "mine-1 ended well after 12.3 s: its training roles have returned.",
        "1,234 scores, the last of worker 1: loss 0.1235, step 3, note a",
        "worker 0 returned [0, 1, 2, 3, 4, 5, ...]",
    ]
    assert (len(lines), lines[-1]) == (2 + 16 + 1, "and 4 more results")


def test_what_roles_have_told_does_not_act_on_the_terminal(capsys):
    score = {"note": "\x1b[2J", "role": "worker", "rank": 0, "attempt": 0, "time": 1.0}
    ledger = balance({}, {}, {})
    tell_result(Result(results={}, scores=[score], attempts=[], ledger=ledger, stop_reason="\x07", run_id="r"), 1.0)
    assert capsys.readouterr().out.splitlines() == [
        "r ended well after 1.0 s: \\x07.",
        "1 scores, the last of worker 0: note \\x1b[2J",
    ]
