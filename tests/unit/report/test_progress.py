"""What is shown while a run is waited for: in terminals of several widths, in notebooks, and nothing elsewhere."""

from __future__ import annotations

import io
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
from rich.cells import cell_len

from dask_train import cards as notebooks
from dask_train.report.progress import EstimatorDisplay, RunDisplay, check_progress, estimators_progress

CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal(io.StringIO):
    """Says that it is a terminal, and keeps what is written to it."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def make_status(**changes: Any) -> dict[str, Any]:
    roles = [
        {"role": role, "rank": rank, "num_batches": 10} for role, rank in [("worker", 0), ("worker", 1), ("ps", 0)]
    ]
    status = {
        "phase": "running",
        "roles": roles,
        "num_alive": 3,
        "waiting": "",
        "num_scores": 4,
        "training": ["worker"],
        "last_scores": [
            ["worker", 0, {"loss": 0.5, "role": "worker", "rank": 0, "attempt": 0, "time": 7.0}],
            [
                "worker",
                1,
                {"loss": 0.123456, "ok": True, "at": "x", "role": "worker", "rank": 1, "attempt": 0, "time": 9.0},
            ],
            ["scorer", 0, {"val_loss": 0.25, "n": 3, "role": "scorer", "rank": 0, "attempt": 0, "time": 8.0}],
        ],
    }
    return {**status, **changes}


def later(status: dict[str, Any], scores: int, batches: int) -> dict[str, Any]:
    roles = [{**role, "num_batches": role["num_batches"] + batches} for role in status["roles"]]
    return {**status, "roles": roles, "num_scores": status["num_scores"] + scores}


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_INTERACTIVE", "TTY_COMPATIBLE", "LINES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    return Terminal()


def drawn(terminal: Terminal) -> list[str]:
    """The texts that were put on the terminal, without what moves its cursor."""
    return [line for line in re.split(r"[\r\n]+", CONTROL.sub("", terminal.getvalue())) if line]


@pytest.fixture
def display() -> RunDisplay:
    """One that has seen a run for 4 s: 40 scores, and 20 batches of each role."""
    clock = Clock()
    shown = RunDisplay(file=Terminal(), clock=clock)
    shown.update(make_status())
    clock.now_s += 4
    shown.update(later(make_status(), 40, 20))
    return shown


@pytest.mark.parametrize(
    ("width", "text"),
    [
        (
            200,
            "running · 3 of 3 roles · loss 0.1235 · scorer val_loss 0.25  n 3 · 10 scores/s · 10 batches/s · 4.0 s",
        ),
        (77, "running · 3/3 · loss 0.123 · scorer val_loss 0.25 · 10 batches/s · 4 s"),
        (40, "running · 3/3 · loss 0.123 · 4 s"),
        (28, "running · loss 0.123 · 4 s"),
        (9, "running"),
        (4, "run…"),
    ],
)
def test_a_narrow_line_keeps_what_matters_most(display: RunDisplay, width: int, text: str) -> None:
    assert display.lines(width) == [text]


def test_what_is_waited_for_has_a_line_of_its_own() -> None:
    display = RunDisplay(file=Terminal(), clock=Clock())
    waiting = "3 roles need as many free threads,\nand 0 of 4 are free."
    display.update(make_status(phase="waiting for room", waiting=waiting, num_alive=0, last_scores=[]))
    assert display.lines(120) == [
        "waiting for room · 0 of 3 roles · 0.00 s",
        "waiting: 3 roles need as many free threads, and 0 of 4 are free.",
    ]
    assert display.lines(30)[1] == "waiting: 3 roles need as many…"


def test_a_run_of_which_nothing_is_known_yet() -> None:
    display = RunDisplay(file=Terminal(), clock=Clock())
    display.update(make_status(phase="starting", roles=[], num_alive=0, num_scores=0, last_scores=[]))
    assert display.lines(80) == ["starting · 0.00 s"]


def test_rates_are_those_of_the_last_seconds() -> None:
    clock = Clock()
    display = RunDisplay(file=Terminal(), clock=clock)
    status = make_status()
    display.update(status)
    for _ in range(20):
        clock.now_s += 0.5
        display.update(status := later(status, 5, 10))
    assert display.rates() == (10.0, 40.0, 0.0), (
        "two workers; what a parameter server takes is no batch of the training"
    )
    for _ in range(20):
        clock.now_s += 0.5
        display.update(status)
    assert display.rates() == (0.0, 0.0, 0.0)
    clock.now_s += 0.5
    display.update(later(status, 1, -status["roles"][0]["num_batches"]))
    assert display.rates()[1] == 0.0, "a role that started again counts from 0"


def test_no_rate_before_a_second_has_passed() -> None:
    clock = Clock()
    display = RunDisplay(file=Terminal(), clock=clock)
    display.update(make_status())
    clock.now_s += 0.9
    display.update(later(make_status(), 1000, 1000))
    assert display.rates() == (0.0, 0.0, 0.0)


def test_a_terminal_is_redrawn_at_most_four_times_a_second(terminal: Terminal) -> None:
    clock = Clock()
    with RunDisplay(file=terminal, clock=clock) as display:
        for _ in range(128):
            display.update(make_status())
            clock.now_s += 1 / 128
        assert len(drawn(terminal)) == 4


@pytest.mark.parametrize("columns", [1, 10, 40, 80, 120])
def test_no_line_wraps(columns: int, terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    with RunDisplay(file=terminal, clock=Clock()) as display:
        display.update(make_status(phase="訓練" * 30, waiting="room " * 60))
        texts = drawn(terminal)
    assert len(texts) == 2
    assert max(map(cell_len, texts)) <= max(1, columns - 3)


def test_roles_can_not_move_the_cursor(terminal: Terminal) -> None:
    with RunDisplay(file=terminal, clock=Clock()) as display:
        display.update(make_status(waiting="a\x1b[2Jb\r\n\x07"))
        display.print_above("red \x1b[31mtext\x1b[0m and \x1b[2J\x1b[5Amoves")
    assert "\x1b[2J" not in terminal.getvalue()
    assert "\x1b[5A" not in terminal.getvalue()
    assert "red text and moves" in drawn(terminal)
    assert "\x1b[31m" in terminal.getvalue()


def test_a_long_line_above_is_not_broken(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    with RunDisplay(file=terminal, clock=Clock()) as display:
        display.update(make_status())
        display.print_above("[worker 0] " + "word " * 30 + "end")
    assert "[worker 0] " + "word " * 30 + "end" in drawn(terminal)


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_a_terminal_is_left_clean(error: type[BaseException], terminal: Terminal) -> None:
    streams = sys.stdout, sys.stderr

    def interrupted() -> None:
        with RunDisplay(file=terminal) as display:
            display.update(make_status(waiting="room"))
            raise error

    with pytest.raises(error):
        interrupted()
    written = terminal.getvalue()
    assert written.rindex("\x1b[?25h") > written.rindex("\x1b[?25l")  # shown after it was hidden
    assert written[written.rindex("running") :].count("\x1b[2K") == 2  # both lines are erased
    assert (sys.stdout, sys.stderr) == streams


def test_a_pipe_gets_nothing_of_a_short_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # as many CI services set it
    file = io.StringIO()
    with RunDisplay(file=file) as display:
        display.update(make_status())
    assert file.getvalue() == ""


def test_a_line_in_a_log_names_the_run_and_has_rows_per_second() -> None:
    file, clock = io.StringIO(), Clock()
    with RunDisplay(file=file, clock=clock) as display:
        for seconds in range(13):
            status = make_status(run="fit-3fa9c1")
            for role in status["roles"]:
                role["num_rows"] = 600 * seconds
            display.update(status)
            clock.now_s += 1
    assert file.getvalue().splitlines()[0].startswith("fit-3fa9c1: running · 3 of 3 roles · loss 0.1235")
    assert " · 1,200 rows/s · 10.0 s" in file.getvalue(), "of the two workers, and not of the parameter server"
    assert "\x1b" not in file.getvalue()


def test_a_pipe_gets_lines_now_and_then_where_they_are_asked_for() -> None:
    file, clock = io.StringIO(), Clock()
    with RunDisplay(True, file=file, clock=clock) as display:
        for seconds in (0, 1, 9, 1):
            clock.now_s += seconds
            display.update(make_status())
        assert display.shown
    written = file.getvalue().splitlines()
    assert [line.rpartition(" · ")[2] for line in written] == ["0.00 s", "10.0 s", "11.0 s"], "and how it is in the end"
    assert all(line.startswith("running · 3 of 3 roles") for line in written)


def test_a_dumb_terminal_gets_nothing(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    with RunDisplay(file=terminal) as display:
        display.update(make_status())
    assert (terminal.getvalue(), display.shown) == ("", False)


def test_nothing_is_shown_where_it_is_not_wanted(terminal: Terminal, notebook: list[Any]) -> None:
    with RunDisplay(False, file=terminal) as display:
        display.update(make_status())
    assert (terminal.getvalue(), notebook, display.shown) == ("", [], False)


def test_a_notebook_gets_one_text_that_changes(notebook: list[Any]) -> None:
    clock, file = Clock(), io.StringIO()
    with RunDisplay(file=file, clock=clock) as display:
        display.update(make_status(phase="<launching>"))
        display.update(make_status(phase="running"))
        assert [data["text/plain"][:11] for data in notebook] == ["<launching>"], "not so soon"
        clock.now_s += 0.25
        display.update(make_status(phase="running"))
        display.update(make_status(phase="over"))
    assert [data["text/plain"].split(" ")[0] for data in notebook] == ["<launching>", "running", "over"]
    assert "&lt;launching&gt;" in notebook[0]["text/html"]
    assert "<script" not in notebook[-1]["text/html"]
    assert "3 of 3 roles" in notebook[1]["text/html"]
    assert "of 3 roles" not in notebook[-1]["text/html"], "it is over"
    assert (file.getvalue(), display.shown) == ("", True)


def test_a_notebook_has_no_card_of_a_short_fit_of_an_estimator(notebook: list[Any]) -> None:
    clock = Clock()
    for lasts_s, is_seen in ((9.0, False), (11.0, True)):
        with EstimatorDisplay(clock=clock) as display:
            display.update(make_status())
            clock.now_s += lasts_s
            display.update(make_status())
        assert bool(notebook) is is_seen


def test_a_fit_of_an_estimator_in_a_thread_draws_in_no_terminal(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(estimators_progress).result(60) is None, "a log may have its lines"
        monkeypatch.setattr(sys, "stderr", terminal)
        assert pool.submit(estimators_progress).result(60) is False
    assert estimators_progress() is None


@pytest.mark.parametrize("shell", [None, object()])
def test_ipython_in_a_terminal_is_no_notebook(shell: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    assert not notebooks.in_notebook()
    monkeypatch.delitem(sys.modules, "IPython")
    assert not notebooks.in_notebook()


def test_the_argument_progress() -> None:
    assert check_progress(None, waits=False) is None
    assert check_progress(False, waits=False) is False
    assert check_progress(True, waits=True) is True
    with pytest.raises(ValueError, match="Progress is shown while a verb waits"):
        check_progress(True, waits=False)
    for wrong in ("yes", 1, 0):
        with pytest.raises(TypeError, match=f"progress is {wrong!r}; pass True, False, or None"):
            check_progress(wrong, waits=True)
