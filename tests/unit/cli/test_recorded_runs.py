"""What ``dask train list`` and ``status`` print, in terminals of two widths and through a pipe."""

from __future__ import annotations

import io
import time
from typing import Any

import pytest
from rich.console import Console

from dask_train.cli import recorded_runs

NOW = time.mktime((2026, 3, 4, 15, 0, 0, 0, 0, -1))


def make_record(**changes: Any) -> dict[str, Any]:
    roles = [
        ["worker", 0, "running", 0, "tcp://127.0.0.1:40001", 4103, "waiting for a batch", 1234],
        ["worker", 1, "waiting for room", 1, "", 0, "", 0],
        ["scorer", 0, "returned", 0, "tcp://127.0.0.1:40002", 4104, "", 7],
    ]
    summary = {
        "phase": "running",
        "roles": roles,
        "waiting": "",
        "num_scores": 12_345,
        "last_scores": [
            ["worker", 0, {"loss": 0.123456, "step": 3, "role": "worker", "rank": 0, "attempt": 0, "time": NOW - 2}],
            ["scorer", 0, {"note": "[best]", "role": "scorer", "rank": 0, "attempt": 0, "time": NOW - 1}],
        ],
        "losses": ["worker 1 is lost: its process 77 was killed by SIGKILL."],
        "outcome": "",
    }
    record = {
        "id": "mine-0a1b2c",
        "started": NOW - 65,
        "ended": 0.0,
        "now": NOW,
        "info": {"roles": {"worker": 2, "scorer": 1}},
        "summary": summary,
    }
    return {**record, **changes}


def make_ended(outcome: str, **changes: Any) -> dict[str, Any]:
    record = make_record(ended=NOW - 60, **changes)
    return {**record, "summary": {**record["summary"], "phase": "over", "outcome": outcome}}


def printed(record: dict[str, Any], width: int | None) -> list[str]:
    """What ``status`` prints about a record: in a terminal so wide, or plainly where the width is None."""
    file = io.StringIO()
    terminal = width is not None
    console = Console(file=file, width=width, force_terminal=terminal, color_system=None, highlight=False)
    recorded_runs.print_status(record, console)
    return file.getvalue().splitlines()


def test_templates_of_a_cluster():
    file = io.StringIO()
    console = Console(file=file, highlight=False)
    recorded_runs.print_templates({}, console)
    assert file.getvalue() == "", "nothing where there are none"
    probe = {"imports": "keras+tensorflow", "pid": 41, "memory": 3 << 20, "idle_s": 65.0}
    recorded_runs.print_templates(
        {"tcp://a:2": [probe], "tcp://a:1": [{**probe, "memory": None, "idle_s": 0.0}]}, console
    )
    assert file.getvalue().splitlines()[1:] == [
        "template          Dask worker  process  memory    unused for",
        "keras+tensorflow  a:1          41       -         0.00 s",
        "keras+tensorflow  a:2          41       3.00 MiB  1 min 05 s",
    ]


def test_a_row_of_a_run_that_goes_on():
    assert recorded_runs._row(make_record()) == ("mine-0a1b2c", "14:58:55", "1/3", "12,345", "1 min 05 s", "running")
    waiting = make_record(summary={"phase": "waiting for room", "waiting": "0 of 4 threads are free.", "roles": []})
    assert recorded_runs._row(waiting)[2:] == ("0/3", "0", "1 min 05 s", "waiting for room: 0 of 4 threads are free.")
    assert recorded_runs._row(make_record(summary={}))[5] == "starting", "its driver has said nothing yet"


def test_a_row_of_a_run_that_is_over():
    assert recorded_runs._row(make_ended("enough"))[1:] == ("14:58:55", "0/3", "12,345", "5.0 s", "over: enough")
    assert recorded_runs._row(make_ended(""))[5] == "over: it has not said why"
    assert recorded_runs._row(make_ended("", started=NOW - 50_000, now=NOW))[1] == "04 Mar 01:06"


@pytest.mark.parametrize("width", [80, 120])
def test_a_list_fits_the_terminal_and_keeps_names_whole(width):
    records = [make_ended(f"RoleFailedError: {'a long [story] ' * 12}the end", id="a-name-of-some-length-0a1b2c")]
    file = io.StringIO()
    recorded_runs.print_list(records, Console(file=file, width=width, force_terminal=True, color_system=None))
    lines = file.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    assert lines[1].startswith("a-name-of-some-length-0a1b2c  14:58:55  0/3 ")
    assert file.getvalue().count("[story]") == 12


def test_a_list_through_a_pipe_is_a_line_each():
    records = [make_ended("a\nlong " + "story " * 40), make_record()]
    file = io.StringIO()
    recorded_runs.print_list(records, Console(file=file))
    lines = file.getvalue().splitlines()
    assert len(lines) == 3
    assert lines[1].endswith("over: a long " + "story " * 39 + "story")
    assert lines[0].index("state") == lines[1].index("over") == lines[2].index("running")


def test_status_of_a_run_that_goes_on():
    lines = printed(make_record(), None)
    assert lines == [
        "run      mine-0a1b2c",
        "roles    worker=2, scorer=1 (1/3 alive)",
        "started  14:58:55, 1 min 05 s",
        "phase    running",
        "lost     worker 1 is lost: its process 77 was killed by SIGKILL.",
        "scores   12,345",
        "",
        "role      phase             attempt  process  batches  Dask worker      doing",
        "worker 0  running           0        4103     1,234    127.0.0.1:40001  waiting for a batch",
        "worker 1  waiting for room  1        -        0        -                -",
        "scorer 0  returned          0        4104     7        127.0.0.1:40002  -",
        "",
        "role      at        last score",
        "scorer 0  14:59:59  note [best]",
        "worker 0  14:59:58  loss 0.1235, step 3",
    ]


@pytest.mark.parametrize("width", [80, 120])
def test_status_fits_the_terminal(width):
    record = make_record()
    record["summary"]["losses"] = ["gone " * 50]
    lines = printed(record, width)
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    assert {"127.0.0.1:40001", "4103", "1,234", "[best]", "loss"} <= set(text.split())
    assert text.count("gone") == 50
    assert "waiting for room" in text


def test_status_of_a_run_that_is_over_and_of_one_that_has_said_nothing():
    assert "outcome  it was stopped" in printed(make_ended("it was stopped"), None)
    assert "phase    starting" in printed(make_record(summary={}), None)


@pytest.mark.parametrize(
    ("role", "rank", "asked"),
    [("ps", None, "ps"), ("worker", 2, "worker 2"), (None, 2, "of rank 2"), ("ps", 0, "ps 0")],
)
def test_a_role_that_a_run_does_not_have(role, rank, asked):
    with pytest.raises(ValueError, match=f"^Run mine-0a1b2c has no role {asked}; it has worker=2, scorer=1\\.$"):
        recorded_runs.check_role(make_record(), role, rank)


@pytest.mark.parametrize(("role", "rank"), [(None, None), ("worker", 1), ("scorer", None), (None, 1)])
def test_roles_that_a_run_has(role, rank):
    recorded_runs.check_role(make_record(), role, rank)


def test_roles_that_have_joined_are_roles_of_the_run():
    record = make_record(info={"roles": {"worker": 1}})
    recorded_runs.check_role(record, "worker", 1)
    recorded_runs.check_role(record, "scorer", None)
    file = io.StringIO()
    recorded_runs.print_list([record], Console(file=file, highlight=False))
    assert " 1/3 " in file.getvalue()


@pytest.mark.parametrize("width", [None, 100])
def test_escape_sequences_of_others_do_nothing(width):
    record = make_ended("the worker said \x1b]0;pwned\x07", id="x\x1b[2J-0a1b2c")
    file = io.StringIO()
    console = Console(file=file, width=width, force_terminal=width is not None, color_system=None, highlight=False)
    recorded_runs.print_list([record], console)
    text = "\n".join([file.getvalue(), *printed(record, width)])
    assert r"\x1b]0;pwned\x07" in text.replace("\n", "").replace(" ", "") or width is not None
    assert "\x1b" not in text
