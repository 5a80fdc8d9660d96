"""What is shown of a search."""

from __future__ import annotations

import io
import re
from types import SimpleNamespace

import pytest

from dask_train.report.search_progress import MOST_ROWS, SearchDisplay
from dask_train.searching.study import FinishedTrial


class Terminal(io.StringIO):
    def isatty(self):
        return True


def ended(number, state="COMPLETE", value=0.5, error=""):
    return FinishedTrial(
        number=number, state=state, params={"rate": 0.01234567, "units": 8}, value=value, seconds=2.0, error=error
    )


def running(number, **scores):
    return SimpleNamespace(number=number, params={"units": 9}, began=1.0, scores=scores)


def test_a_file_gets_a_line_for_each_trial_once_and_only_where_it_is_wanted():
    file = io.StringIO()
    with SearchDisplay(True, metric="val_loss", trials=5, file=file, clock=lambda: 7.0) as display:
        trials = [ended(0), ended(1, "FAIL", None, "OSError: out of\nideas")]
        display.update(trials, [running(2)])
        display.update([*trials, ended(2, "PRUNED")], [])
    assert file.getvalue().splitlines() == [
        "trial 0 done after 2.0 s: val_loss 0.5; rate=0.01235 units=8",
        "trial 1 failed after 2.0 s: OSError: out of ideas; rate=0.01235 units=8",
        "trial 2 pruned after 2.0 s: val_loss 0.5; rate=0.01235 units=8",
    ]
    for progress in (None, False):
        quiet = io.StringIO()
        with SearchDisplay(progress, metric="val_loss", trials=5, file=quiet) as display:
            display.update([ended(0)], [])
        assert quiet.getvalue() == ""


def test_a_file_of_a_long_search_gets_a_line_of_figures_where_nobody_asked():
    file, now = io.StringIO(), [7.0]
    with SearchDisplay(None, metric="val_loss", trials=5, file=file, clock=lambda: now[0]) as display:
        now[0] += 11
        display.update([ended(0), ended(1)], [running(2)], ended(0))
    line = "2 of 5 trials · 1 running · best val_loss 0.5 (trial 0) · 16.5 s left · 11.0 s"
    assert file.getvalue().splitlines() == [line, line], "and how it was in the end"


def test_a_terminal_shows_the_best_the_last_and_those_that_run(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    file = Terminal()
    trials = [ended(number, value=1.0 / (number + 1)) for number in range(40)]
    with SearchDisplay(metric="score", trials=50, file=file, clock=lambda: 7.0) as display:
        display.update(trials, [running(40, epoch=2, score=0.125)], trials[0])
        shown = file.getvalue()
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown)
    rows = [line for line in shown.splitlines() if "units=" in line]
    assert len(rows) == MOST_ROWS
    assert rows[0].split()[:3] == ["0", "best", "1"]
    assert "running" in rows[-1]
    assert "0.125" in rows[-1]
    assert "40 of 50 trials · 1 running · best score 1 (trial 0) · 0.00 s" in shown
    assert file.getvalue().endswith("\x1b[?25h"), "the cursor is back"


@pytest.mark.parametrize("columns", [20, 40])
def test_no_row_wraps(columns, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", str(columns))
    file = Terminal()
    with SearchDisplay(metric="val_accuracy", trials=5, file=file) as display:
        display.update([ended(0, "FAIL", None, "an error " * 50)], [running(1)])
        num_lines = file.getvalue().count("\n")
    assert num_lines <= 4


def test_a_notebook_gets_one_table_whose_last_state_stays(notebook):
    file = io.StringIO()
    with SearchDisplay(metric="score", trials=2, file=file, clock=lambda: 7.0) as display:
        display.update([], [running(0)])
        display.update([ended(0, error="<none>")], [])
    assert len(notebook) == 2
    assert "running" in notebook[0]["text/plain"]
    assert "1 of 2 trials · 0 running" in notebook[1]["text/plain"]
    assert "&lt;none&gt;" in notebook[1]["text/html"]
    assert file.getvalue() == ""


def test_a_notebook_gets_no_escape_codes(monkeypatch):
    shown = []
    monkeypatch.setenv("FORCE_COLOR", "1")  # as kernels of Jupyter do
    monkeypatch.setattr("dask_train.report.display.in_notebook", lambda: True)
    monkeypatch.setattr("dask_train.report.notebook.NotebookOutput.show", lambda _, *texts: shown.extend(texts))
    with SearchDisplay(metric="val_loss", trials=3) as display:
        display.update([ended(0), ended(1, "FAIL", None, "out of ideas")], [running(2)], None)
    assert all("out of ideas" in text for text in shown[-2:])
    assert "\x1b" not in "".join(shown)
