"""Lines that are redrawn in a terminal, and what of them reaches other files: nothing."""

from __future__ import annotations

import io
import re
import sys
import threading

import pytest
from rich.text import Text

from dask_train.report.fitted import SPARE_COLUMNS, Redrawn

CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
HIDDEN, SHOWN, ERASED = "\x1b[?25l", "\x1b[?25h", "\x1b[2K"


class Terminal(io.StringIO):
    """Says that it is a terminal, and keeps what is written to it."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch):
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_INTERACTIVE", "TTY_COMPATIBLE", "LINES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "50")
    return Terminal()


def words(terminal):
    return CONTROL.sub("", terminal.getvalue()).replace("\r", "\n").split()


def count():
    """What is drawn, and in how many columns it was asked for."""
    asked = []

    def drawn(width):
        asked.append(width)
        return Text(f"drawn-{len(asked)}")

    return drawn, asked


def test_it_is_drawn_when_it_is_told_to_and_at_no_other_time(terminal):
    drawn, asked = count()
    redrawn = Redrawn(terminal, drawn)
    assert redrawn.is_shown
    assert terminal.getvalue() == ""
    threads = threading.active_count()
    redrawn.start()
    assert threading.active_count() == threads, "nobody draws by the clock"
    before = len(asked)
    redrawn.refresh()
    redrawn.refresh()
    assert len(asked) == before + 2
    redrawn.stop()
    assert words(terminal)[-1].startswith("drawn-")


def test_it_is_erased_at_the_end_and_the_cursor_comes_back(terminal):
    redrawn = Redrawn(terminal, lambda width: Text("one\ntwo"))
    redrawn.start()
    redrawn.refresh()
    assert HIDDEN in terminal.getvalue()
    redrawn.stop()
    after = terminal.getvalue().rpartition("two")[2]
    assert after.count(ERASED) == 2, "a line each"
    assert terminal.getvalue().endswith(SHOWN)


def test_columns_are_those_of_the_terminal_of_the_moment(terminal):
    drawn, asked = count()
    redrawn = Redrawn(terminal, drawn)
    redrawn.start()
    for columns in (50, 80, 1):
        redrawn.console.width = columns  # a terminal that has been resized
        redrawn.refresh()
        assert asked[-1] == max(1, columns - SPARE_COLUMNS)
    redrawn.stop()


@pytest.mark.parametrize("forced", ["1", "true"])
def test_a_file_gets_nothing_whatever_the_environment_forces(monkeypatch, forced):
    monkeypatch.setenv("FORCE_COLOR", forced)
    monkeypatch.setenv("TERM", "xterm")
    file = io.StringIO()
    drawn, asked = count()
    redrawn = Redrawn(file, drawn)
    redrawn.start()
    redrawn.refresh()
    redrawn.stop()
    assert (redrawn.is_shown, asked, file.getvalue()) == (False, [], "")


def test_a_dumb_terminal_and_one_where_it_is_not_wanted_get_nothing(terminal, monkeypatch):
    drawn, asked = count()
    not_wanted = Redrawn(terminal, drawn, wanted=False)
    monkeypatch.setenv("TERM", "dumb")
    for redrawn in (not_wanted, Redrawn(terminal, drawn)):
        redrawn.start()
        redrawn.refresh()
        redrawn.stop()
        assert not redrawn.is_shown
    assert (asked, terminal.getvalue()) == ([], "")


def test_what_is_printed_above_stays_as_it_is(terminal):
    redrawn = Redrawn(terminal, lambda width: Text("line"))
    redrawn.start()
    redrawn.console.print(":smile: [bold]12[/bold] 'text'")
    redrawn.refresh()
    redrawn.stop()
    assert ":smile: [bold]12[/bold] 'text'" in CONTROL.sub("", terminal.getvalue())
    assert "\x1b[1m" not in terminal.getvalue(), "no markup, and no colours of numbers"


@pytest.mark.parametrize(("force", "coloured"), [(None, False), (True, True), (False, False)])
def test_colours_of_what_is_printed_into_a_file_are_kept_where_that_is_forced(terminal, force, coloured):
    file = io.StringIO()
    redrawn = Redrawn(file, lambda width: Text("line"), force_terminal=force)
    redrawn.console.print(Text("red", style="red"))
    assert ("\x1b[31m" in file.getvalue()) is coloured
    assert not redrawn.is_shown


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_an_error_while_it_is_drawn_leaves_no_line_behind(terminal, error):
    fails = []

    def drawn(width):
        if fails:
            raise error
        return Text("line")

    redrawn = Redrawn(terminal, drawn)
    redrawn.start()
    redrawn.refresh()
    fails.append(True)
    with pytest.raises(error):
        redrawn.refresh()
    fails.clear()
    redrawn.stop()
    assert terminal.getvalue().endswith(f"\r{ERASED}{SHOWN}")


def test_a_stop_that_is_cut_short_shows_the_cursor_all_the_same(terminal):
    redrawn = Redrawn(terminal, lambda width: Text("line"))
    redrawn.start()

    def cut():
        raise KeyboardInterrupt

    redrawn._live.stop = cut
    with pytest.raises(KeyboardInterrupt):
        redrawn.stop()
    assert terminal.getvalue().endswith(SHOWN)


def test_streams_that_are_no_terminals_are_left_alone(terminal):
    streams = sys.stdout, sys.stderr
    redrawn = Redrawn(terminal, lambda width: Text("line"))
    redrawn.start()
    try:
        assert (sys.stdout, sys.stderr) == streams
        print("into the file that it was sent to")
    finally:
        redrawn.stop()
    assert "into the file" not in terminal.getvalue()


def test_what_a_program_prints_on_the_same_terminal_stands_above(terminal, monkeypatch):
    monkeypatch.setattr(sys, "stdout", terminal)
    redrawn = Redrawn(terminal, lambda width: Text("line"))
    redrawn.start()
    redrawn.refresh()
    print("printed")
    redrawn.refresh()
    redrawn.stop()
    assert sys.stdout is terminal
    assert words(terminal).count("printed") == 1
    before, _, after = terminal.getvalue().partition("printed")
    assert before.endswith(ERASED), "the line makes room for it"
    assert "line" in after, "and is drawn again below"
