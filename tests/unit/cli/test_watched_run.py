"""How a run from a command line ended, in brief."""

from __future__ import annotations

import io
import sys

import pytest

from dask_train.cli import watched_run
from dask_train.cli.watched_run import tell_result
from dask_train.data.ledger import balance
from dask_train.driver.result import Result
from dask_train.driver.role_output import OutputLine
from dask_train.errors import StalledError
from dask_train.report.progress import RunDisplay


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


class Reader:
    """Gives what is next: lines, or an error."""

    def __init__(self, *next_ones):
        self.left = list(next_ones)

    def read(self):
        given = self.left.pop(0) if self.left else []
        if isinstance(given, Exception):
            raise given
        return given


class Hidden(RunDisplay):
    """Shows nothing."""

    def update(self, status):
        """The status of this run has no more than its phase."""


class Started:
    """A run that is watched twice, and then ends."""

    id = "mine-1"

    def __init__(self, error=None):
        self.error = error

    def result(self, watch):
        for _ in range(2):
            watch({"phase": "running"})
        if self.error is not None:
            raise self.error
        return Result(
            results={}, scores=[], attempts=[], ledger=balance({}, {}, {}), stop_reason="done", run_id="mine-1"
        )


def watch(monkeypatch, started, *read):
    monkeypatch.setattr(watched_run, "OUTPUT_S", 0.0)
    monkeypatch.setattr(watched_run, "train", lambda *given, **wanted: started)
    monkeypatch.setattr(watched_run, "RunDisplay", Hidden)
    monkeypatch.setattr(watched_run, "OutputReader", lambda client, run: Reader(*read))
    watched_run.run_watched(None, {}, {})


SILENT = StalledError("The scheduler did not answer train_run_show within 10 s.")


def test_output_that_can_not_be_read_is_asked_for_again(monkeypatch, capsys):
    watch(monkeypatch, Started(), SILENT, [OutputLine("worker", 0, "step 1")])
    printed = capsys.readouterr()
    assert printed.out.splitlines()[0] == "[worker 0] step 1"
    assert "could not be read" not in printed.err


@pytest.mark.parametrize("end", [KeyboardInterrupt(), RuntimeError("its own")])
def test_how_a_run_ended_is_told_though_its_last_output_could_not_be_read(monkeypatch, capsys, end):
    with pytest.raises(type(end)):
        watch(monkeypatch, Started(end), [], [], SILENT)
    assert "The last output could not be read: The scheduler did not answer" in capsys.readouterr().err


class GonePipe(io.StringIO):
    """A pipe whose reader has gone."""

    def write(self, text):
        raise BrokenPipeError(32, "Broken pipe")


def test_a_letter_that_the_output_lacks_and_a_reader_that_has_gone_end_no_run(monkeypatch):
    for stdout in (io.TextIOWrapper(io.BytesIO(), encoding="latin-1"), GonePipe()):
        monkeypatch.setattr(sys, "stdout", stdout)
        watch(monkeypatch, Started(), [OutputLine("worker", 0, "\u2713 ok")])
        if not isinstance(stdout, GonePipe):
            assert b"[worker 0] \\u2713 ok\nmine-1 ended well" in stdout.buffer.getvalue()
