"""Errors in a notebook: a card of their parts, tracebacks folded; elsewhere they are as any other."""

from __future__ import annotations

import pickle
import runpy
import sys
from types import SimpleNamespace

import pytest

from dask_train.error_cards import card_of
from dask_train.errors import RoleFailedError, StalledError

PARTS = {"what": "worker 1 raised <b>.", "why": "", "what to change": "Its data."}


@pytest.fixture
def displayed(monkeypatch):
    """What a kernel has drawn."""
    told = []
    shell = type("ZMQInteractiveShell", (), {"execution_count": 3})()

    def display(shown, *, raw):
        assert raw
        told.append(shown)

    ipython = SimpleNamespace(get_ipython=lambda: shell, display=SimpleNamespace(display=display))
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    return told


def failed() -> RoleFailedError:
    """An error of a run, as a verb raises it."""
    error = RoleFailedError("worker 1 raised ValueError: the loss is nan.", "", "Lower the rate.")
    error.add_note("Traceback of worker 1:\n  File 'mine.py', line 3\nValueError: <nan>")
    error.add_note("This was run mine-1.")
    try:
        raise error
    except RoleFailedError as raised:
        return raised


def test_a_notebook_shows_the_parts_and_folds_tracebacks(displayed):
    error = failed()
    lines = error._render_traceback_()
    assert error._render_traceback_() == lines, "IPython asks twice"
    assert lines == ["RoleFailedError: worker 1 raised ValueError: the loss is nan."]
    (shown,) = displayed
    html = shown["text/html"]
    for text in ("<b>RoleFailedError</b>", "what to change", "Lower the rate.", "This was run mine-1."):
        assert text in html
    assert ">why<" not in html, "a part that is empty"
    folds = [each.partition("</summary>") for each in html.split("<summary")[1:]]
    assert ["Traceback of worker 1" in folds[0][0], "Traceback in this notebook" in folds[1][0]] == [True, True]
    assert "ValueError: &lt;nan&gt;" in folds[0][2]
    assert "in failed" in folds[1][2]
    assert "Traceback of worker 1" in shown["text/plain"]


def test_elsewhere_ipython_shows_it_as_any_other(monkeypatch):
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    assert not hasattr(StalledError("Nothing came."), "_render_traceback_")
    shell = type("TerminalInteractiveShell", (), {})()
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    assert not hasattr(StalledError("Nothing came."), "_render_traceback_")


def test_an_error_in_a_notebook_travels(displayed):
    copied = pickle.loads(pickle.dumps(failed()))
    assert copied.change == "Lower the rate."


def test_frames_begin_at_the_cell_and_secrets_are_masked(tmp_path):
    cell = tmp_path / "ipykernel_7" / "1.py"
    cell.parent.mkdir()
    cell.write_text("def f():\n    raise KeyError('x')\nf()\n")
    with pytest.raises(KeyError) as raised:
        runpy.run_path(str(cell))
    raised.value.add_note("Its store:\ns3://me:secret@host/x")
    html = card_of(raised.value, PARTS).html()
    assert "ipykernel_7/1.py&quot;, line 3" in html
    assert "test_error_cards.py" not in html
    assert "raised &lt;b&gt;." in html
    assert "secret" not in html
