"""The live line: one line that fits in a terminal, plain lines elsewhere, and a clean terminal afterwards."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
from typing import Any

import pytest
from rich.console import Console

from dask_train.demo.live import DemoProgress, LiveLine

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


def make_progress(**changes: Any) -> DemoProgress:
    plain: dict[str, Any] = {
        "phase": "training",
        "rows_prepared": 1_100_000,
        "rows_total": 1_100_000,
        "rows_trained": 3_456_789,
        "rows_per_s": 123_456.7,
        "score": 0.12344,
        "target": 0.1,
        "elapsed_s": 42.3,
    }
    return DemoProgress(**{**plain, **changes})


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


def test_plain_lines_have_no_control_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # as many CI services set it
    file = io.StringIO()
    with LiveLine(file) as line:
        line.update(make_progress(phase="a\x1b[31mphase\r\n"))
        line.phase_done("prepared 1,100,000 rows", 12.34, "44\tpartitions\x07")
    written = file.getvalue()
    assert all(letter.isprintable() or letter == "\n" for letter in written)
    assert written.splitlines()[1] == "prepared 1,100,000 rows in 12.3 s (44 partitions )"
    assert len(written.splitlines()) == 2


def test_plain_line_says_all() -> None:
    file = io.StringIO()
    with LiveLine(file) as line:
        line.update(make_progress())
    assert file.getvalue() == (
        "training · 1,100,000 rows prepared · 3,456,789 rows trained · 123,457 rows/s · "
        "score 0.1234 · target 0.1000 · 42.3 s\n"
    )


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"rows_prepared": 550_000}, "preparing · 550,000 of 1,100,000 rows prepared · 42.3 s"),
        ({"rows_prepared": 550_000, "rows_total": 0}, "preparing · 550,000 rows prepared · 42.3 s"),
        ({"elapsed_s": 245.2}, "preparing · 1,100,000 rows prepared · 4 min 05 s"),
    ],
)
def test_what_is_not_known_yet_is_left_out(changes: dict[str, Any], expected: str) -> None:
    file = io.StringIO()
    before = {"phase": "preparing", "rows_trained": 0, "rows_per_s": 0.0, "score": None, **changes}
    LiveLine(file).update(make_progress(**before))
    assert file.getvalue().strip() == expected


def test_plain_lines_of_a_phase_end_with_its_last_figures() -> None:
    file = io.StringIO()
    with LiveLine(file, clock=Clock()) as line:
        for score in (2.3, 0.5, 0.25):
            line.update(make_progress(score=score))
        line.phase_done("trained", 0.5)
        line.phase_done("tested", 0.5)
    assert [re.findall(r"score ([\d.]+)|^(\w+ in)", each)[0] for each in file.getvalue().splitlines()] == [
        ("2.3000", ""),
        ("0.2500", ""),
        ("", "trained in"),
        ("", "tested in"),
    ]


def test_plain_lines_come_at_most_once_a_second() -> None:
    file, clock = io.StringIO(), Clock()
    with LiveLine(file, clock=clock) as line:
        for _ in range(25):
            line.update(make_progress(phase=f"phase at {clock.now_s:.1f}"))
            clock.now_s += 0.125
    assert [text[:14] for text in file.getvalue().splitlines()] == [
        "phase at 100.0",
        "phase at 101.0",
        "phase at 102.0",
        "phase at 103.0",
    ]


def test_terminal_is_redrawn_at_most_four_times_a_second(terminal: Terminal) -> None:
    clock = Clock()
    with LiveLine(terminal, clock=clock) as line:
        for _ in range(128):
            line.update(make_progress())
            clock.now_s += 1 / 128
        assert len(drawn(terminal)) == 4


def test_no_thread_is_started(terminal: Terminal) -> None:
    before = set(threading.enumerate())
    with LiveLine(terminal) as line:
        line.update(make_progress())
        assert set(threading.enumerate()) <= before


def test_new_phase_is_shown_at_once(terminal: Terminal) -> None:
    with LiveLine(terminal, clock=Clock()) as line:
        line.update(make_progress(phase="launching"))
        line.update(make_progress(phase="training"))
        assert drawn(terminal)[-1].startswith("training")


@pytest.mark.parametrize("columns", [1, 10, 20, 40, 60, 80, 120])
@pytest.mark.parametrize("phase", ["training", "a phase whose name is longer than all of a narrow terminal", "訓練"])
def test_line_never_wraps(columns: int, phase: str, terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    from rich.cells import cell_len

    monkeypatch.setenv("COLUMNS", str(columns))
    with LiveLine(terminal, clock=Clock()) as line:
        line.update(make_progress(phase=phase, rows_prepared=1_000_000, elapsed_s=36_000))
        texts = drawn(terminal)
    assert len(texts) == 1
    assert cell_len(texts[0]) <= max(1, columns - 3)


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        (80, "training · 1.1M ready · 3.46M trained · 123k/s · score 0.123 · to 0.1 · 42 s"),
        (60, "training · 3.46M trained · 123k/s · score 0.123 · 42 s"),
        (48, "training · 3.46M trained · score 0.123 · 42 s"),
        (32, "training · score 0.123 · 42 s"),
    ],
)
def test_narrow_line_keeps_what_matters_most(
    columns: int, text: str, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    with LiveLine(terminal, clock=Clock()) as line:
        line.update(make_progress())
        assert drawn(terminal) == [text]


def test_permanent_line_stays_above_the_live_one(terminal: Terminal) -> None:
    with LiveLine(terminal, clock=Clock()) as line:
        line.update(make_progress())
        line.phase_done("prepared 1,100,000 rows", 12.34, "44 partitions")
        assert drawn(terminal)[-2:] == [
            "prepared 1,100,000 rows in 12.3 s (44 partitions)",
            "training · 1,100,000 rows prepared · 3,456,789 rows trained · 123,457 rows/s · "
            "score 0.1234 · target 0.1000 · 42.3 s",
        ]


def test_dumb_terminal_gets_plain_lines(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    with LiveLine(terminal) as line:
        line.update(make_progress())
        line.phase_done("trained", 1.0)
    assert "\x1b" not in terminal.getvalue()
    assert len(terminal.getvalue().splitlines()) == 2


def test_encoding_without_dots() -> None:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding="ascii")
    with LiveLine(file) as line:
        line.update(make_progress(phase="entraîner"))
    assert raw.getvalue().startswith(b"entra?ner | 1,100,000 rows prepared | 3,456,789 rows trained | ")


def test_output_that_goes_to_a_file_stays_there(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    to_file, to_terminal = io.StringIO(), Terminal()
    monkeypatch.setattr(sys, "stdout", to_file)
    monkeypatch.setattr(sys, "stderr", to_terminal)
    with LiveLine(terminal):
        sys.stdout.write("result\n")
        sys.stderr.write("warning\n")
    assert to_file.getvalue() == "result\n"
    assert drawn(terminal) == ["warning"]
    assert sys.stdout is to_file
    assert sys.stderr is to_terminal


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_terminal_is_left_clean(error: type[BaseException], terminal: Terminal) -> None:
    streams = sys.stdout, sys.stderr

    def interrupted() -> None:
        with LiveLine(terminal) as line:
            line.update(make_progress())
            raise error

    with pytest.raises(error):
        interrupted()
    written = terminal.getvalue()
    assert written.rindex("\x1b[?25h") > written.rindex("\x1b[?25l")  # shown after it was hidden
    assert written.rindex("\x1b[2K") > written.rindex("training")  # the line is erased
    assert (sys.stdout, sys.stderr) == streams


def test_terminal_is_left_clean_by_a_ctrl_c_before_a_line_is_written(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave = Console.__exit__

    def cut(console: Console, *error: object) -> None:
        monkeypatch.setattr(Console, "__exit__", leave)
        raise KeyboardInterrupt

    def interrupted() -> None:
        with LiveLine(terminal) as line:
            line.update(make_progress())
            monkeypatch.setattr(Console, "__exit__", cut)
            line.update(make_progress(phase="another"))

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    written = terminal.getvalue()
    assert written.rindex("\x1b[?25h") > written.rindex("\x1b[?25l")
    assert written.rindex("\x1b[2K") > written.rindex("training")


# Python has no KeyboardInterrupt where it was started with SIGINT ignored, as a shell's background jobs are.
PROGRAM = """
import itertools, signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from dask_train.demo.live import DemoProgress, LiveLine
with LiveLine() as line:
    line.phase_done("started", 1.0)
    for n in itertools.count():
        line.update(DemoProgress(phase=f"phase {n}", rows_prepared=7, rows_total=9, rows_trained=1_000_000 * n,
                             rows_per_s=123_456, score=0.5, target=0.1, elapsed_s=n))
"""


def test_ctrl_c_in_a_real_terminal_of_60_columns(read_until) -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 10, 60, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "LINES"}}
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        stdin=theirs,
        stdout=theirs,
        stderr=subprocess.DEVNULL,
        env={**environment, "TERM": "xterm"},
        start_new_session=True,
    ) as process:
        os.close(theirs)
        try:
            written = read_until(ours, b"phase 200")
            process.send_signal(signal.SIGINT)
            written += read_until(ours, None)
        finally:
            process.kill()  # does nothing to one that has ended
            os.close(ours)
        assert process.wait(timeout=60) != 0
    text = written.decode()
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")
    lines = [line for line in re.split(r"[\r\n]+", CONTROL.sub("", text)) if line]
    assert lines[0] == "started in 1.0 s"
    assert max(len(line) for line in lines) <= 57
