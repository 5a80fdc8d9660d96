"""Where progress is shown: lines in a log now and then, nothing where nobody asked."""

from __future__ import annotations

import io

import pytest

from dask_train.cards import Card
from dask_train.report.display import WRITE_INTERVAL_S, Display, facts_of
from dask_train.report.fitted import LineField


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class Counting(Display):
    """Shows a count."""

    def __init__(self, *args, **settings):
        self.count = 0
        super().__init__(*args, **settings)

    def _fields(self):
        return [
            LineField(rank=0, text="counting", brief="counting"),
            LineField(rank=1, text=f"{self.count} in all", brief=f"{self.count}"),
        ]

    def _below(self):
        return ["a line\r below that is much too long"]

    def _card(self):
        return Card(kind="Counting", name="", facts=facts_of(self._fields()))

    def counted(self):
        self.count += 1
        self._draw()


@pytest.fixture
def log():
    return io.StringIO()


def figures_in(log):
    return [line for line in log.getvalue().splitlines() if line.startswith("counting")]


def test_nothing_is_written_into_a_log_where_it_is_not_wanted(log):
    with Counting(False, file=log) as display:
        display.counted()
    assert not display.shown
    assert log.getvalue() == ""


@pytest.mark.parametrize(("lasts_s", "written"), [(9, []), (11, [11, 12]), (69, [11, 70]), (133, [11, 71, 131, 134])])
def test_a_log_of_a_long_job_gets_a_line_a_minute_and_that_of_a_short_one_none(log, lasts_s, written):
    clock = Clock()
    with Counting(None, file=log, clock=clock) as display:
        for _ in range(lasts_s + 1):
            display.counted()
            clock.now += 1
    assert display.shown
    expected = [f"counting · {min(count, lasts_s + 1)} in all" for count in written]
    assert figures_in(log) == expected


def test_in_a_terminal_where_a_debugger_asks_nothing_is_written_unless_it_is_asked_for():
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    assert not Counting(None, file=Terminal(), redraws=False).shown
    assert Counting(True, file=Terminal(), redraws=False).shown


def test_a_log_gets_a_line_now_and_then_and_the_last(log):
    clock = Clock()
    with Counting(True, file=log, clock=clock) as display:
        for _ in range(3):
            display.counted()
            clock.now += 0.6 * WRITE_INTERVAL_S
    assert figures_in(log) == ["counting · 1 in all", "counting · 3 in all", "counting · 3 in all"]
    assert "\x1b" not in log.getvalue()


def test_what_has_never_been_drawn_has_no_last_line(log):
    with Counting(True, file=log):
        pass
    assert log.getvalue() == ""


def test_lines_fit_and_move_no_cursor(log):
    display = Counting(False, file=log)
    display.count = 1234
    assert display.lines(80) == ["counting · 1234 in all", "a line  below that is much too long"]
    first, second = display.lines(16)
    assert first == "counting · 1234"
    assert second.startswith("a line ")
    assert (len(second), second[-1]) == (16, "…")


def test_a_card_has_the_figures_after_its_title(log):
    display = Counting(False, file=log)
    assert facts_of(display._fields()) == [("", "0 in all")]
    assert facts_of(display._fields()[:1]) == []
    assert "0 in all" in display.html()


def test_an_error_ends_it_in_order(log):
    def fails() -> None:
        with Counting(True, file=log) as display:
            display.counted()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert log.getvalue().count("counting · 1 in all") == 2
