"""Which cell runs, and what earlier executions of it have started."""

from __future__ import annotations

import gc
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from dask_train.driver import notebook
from dask_train.driver.notebook import remember, runs_before, this_cell


class Run:
    """Something that can be held weakly."""


@pytest.fixture(autouse=True)
def _nothing_was_started(monkeypatch):
    monkeypatch.setattr(notebook, "_started", {})


@pytest.fixture
def shell(monkeypatch):
    """Lets a shell of IPython run; with ``cell_id``, ``parent`` or a file of which the code is."""

    def run(execution: int, *, file: str = "", **shell: Any) -> Any:
        known = SimpleNamespace(execution_count=execution)
        if "cell_id" in shell:
            known.get_parent = lambda: {"metadata": {"cellId": shell["cell_id"]}}
        if "parent" in shell:
            known.get_parent = lambda: shell["parent"]
        monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: known))
        names = {"this_cell": this_cell}
        exec(compile("found = this_cell()", file or "module.py", "exec"), names)  # noqa: S102 - as IPython does
        return names["found"]

    return run


def test_outside_of_ipython_there_is_no_cell(monkeypatch):
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    assert this_cell() is None
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: None))
    assert this_cell() is None, "IPython is imported, and does not run"


def test_a_cell_is_known_by_the_id_that_outlives_an_edit(shell):
    assert shell(7, cell_id="b2c4", file="/nowhere/ipykernel_12/345.py") == ("b2c4", 7)


@pytest.mark.parametrize("parent", [None, {}, {"metadata": None}, {"metadata": {}}, {"metadata": {"cellId": None}}])
def test_without_an_id_it_is_known_by_its_content(shell, parent):
    assert shell(3, parent=parent, file="/nowhere/ipykernel_12/345.py") == ("/nowhere/ipykernel_12/345.py", 3)


def test_a_terminals_cell_is_known_by_its_content_and_not_by_its_number(shell):
    assert shell(3, file="<ipython-input-3-0a1b2c>") == shell(3, file="<ipython-input-9-0a1b2c>") == ("0a1b2c", 3)


def test_code_of_a_module_alone_is_no_cell(shell):
    assert shell(3) is None


def test_what_an_earlier_execution_has_started_and_somebody_holds_is_known():
    held, dropped, other = Run(), Run(), Run()
    remember(("a", 1), held)
    remember(("a", 1), dropped)
    remember(("b", 2), other)
    assert runs_before(("a", 1)) == [], "the same execution may start several"
    del dropped
    gc.collect()
    assert runs_before(("a", 3)) == [held]
    assert runs_before(("c", 3)) == []


def test_the_next_execution_takes_the_place_of_the_one_before():
    first, second = Run(), Run()
    remember(("a", 1), first)
    remember(("a", 2), second)
    assert runs_before(("a", 3)) == [second]


def test_outside_of_a_cell_nothing_is_remembered():
    remember(None, Run())
    assert notebook._started == {}
    assert runs_before(None) == []
