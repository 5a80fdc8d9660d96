"""What stands below a notebook's cell: an output that is drawn in place, and a button where there can be one."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import ipywidgets
import pytest

from dask_train.cards import in_notebook
from dask_train.report import notebook as notebooks
from dask_train.report.notebook import NotebookButton, NotebookOutput


@pytest.fixture
def displayed(monkeypatch):
    """What a kernel is told: ``(number of the output, what it shows)``."""
    told = []

    def display(shown, *, raw=False, display_id):
        number = len({each for each, _ in told})
        told.append((number, shown))
        return SimpleNamespace(update=lambda shown, raw: told.append((number, shown)))

    shell = type("ZMQInteractiveShell", (), {})()
    ipython = SimpleNamespace(get_ipython=lambda: shell, display=SimpleNamespace(display=display))
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    return told


@pytest.mark.parametrize(
    ("shell", "is_notebook"),
    [("ZMQInteractiveShell", True), ("TerminalInteractiveShell", False), ("Shell", False), (None, False)],
)
def test_a_notebook_is_a_kernel_of_jupyter(shell, is_notebook, monkeypatch):
    running = None if shell is None else type(shell, (), {})()
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: running))
    assert in_notebook() is is_notebook


def test_where_ipython_is_not_imported_it_stays_so(monkeypatch):
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    assert not in_notebook()
    assert "IPython" not in sys.modules


def test_an_output_is_drawn_once_and_then_in_its_place(displayed):
    output, other = NotebookOutput(), NotebookOutput()
    assert displayed == [], "nothing before there is something to show"
    output.show("1 of 3", "<b>1</b> of 3")
    other.show("other", "<i>other</i>")
    output.show("2 of 3", "<b>2</b> of 3")
    assert displayed == [
        (0, {"text/plain": "1 of 3", "text/html": "<b>1</b> of 3"}),
        (1, {"text/plain": "other", "text/html": "<i>other</i>"}),
        (0, {"text/plain": "2 of 3", "text/html": "<b>2</b> of 3"}),
    ]


def test_a_button_calls_each_time_it_is_pressed_and_goes_when_it_is_closed(displayed):
    pressed = []
    button = NotebookButton("Stop", lambda: pressed.append("pressed"))
    ((number, shown),) = displayed
    assert isinstance(shown, ipywidgets.Button)
    assert shown.description == "Stop"
    shown.click()
    shown.click()
    assert pressed == ["pressed"] * 2
    button.close()
    assert displayed[1:] == [(number, {"text/plain": ""})]
    assert shown.comm is None, "its widget is closed"


def test_without_ipywidgets_there_is_no_button_and_no_warning(displayed, monkeypatch):
    monkeypatch.setattr(notebooks, "find_spec", lambda name: None)
    button = NotebookButton("Stop", lambda: None)
    button.close()
    assert displayed == []
