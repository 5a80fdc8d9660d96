"""The choice of runs to compare, in bokeh."""

from __future__ import annotations

import pytest

pytest.importorskip("bokeh")

from bokeh.models import ColumnDataSource, Div, MultiChoice, RadioButtonGroup, Select

from dask_train.dashboard.comparison import Comparison
from dask_train.dashboard.traces import Trace
from dask_train.scheduler.runs import KnownRun


def told(name, *losses):
    run = KnownRun(name, "me", {"settings": {"lr": name}}, started=100.0, ended=160.0)
    trace = Trace(running_since=100.0)
    for epoch, loss in enumerate(losses):
        trace.score({"epoch": epoch, "loss": loss, "role": "worker", "rank": 0, "attempt": 0}, 110.0 + epoch)
    return run, trace


class Shown:
    def __init__(self):
        self.panel = Comparison()
        self.known = {"a": told("a", 3.0, 2.0), "b": told("b", 5.0), "c": told("c", 7.0)}

    def update(self):
        runs = [run for run, _ in self.known.values()]
        self.panel.update(runs, {name: trace for name, (_, trace) in self.known.items()}, 170.0)

    def one(self, kind):
        return self.panel.root.select_one({"type": kind})

    @property
    def lines(self):
        return self.one(ColumnDataSource).data

    @property
    def is_compared(self):
        return self.panel.root.children[-1].visible


@pytest.fixture
def shown():
    return Shown()


def test_two_chosen_runs_are_in_one_chart_and_one_table(shown):
    shown.update()
    assert shown.one(MultiChoice).options == [("a", "a"), ("b", "b"), ("c", "c")]
    assert not shown.is_compared
    shown.one(MultiChoice).value = ["a", "c"]
    shown.update()
    assert shown.is_compared
    assert shown.lines["ys"] == [[3.0, 2.0], [7.0]]
    assert shown.one(Select).value == "loss"
    (table,) = [div.text for div in shown.panel.root.select({"type": Div}) if "<table" in div.text]
    assert "loss, lowest" in table
    shown.one(RadioButtonGroup).active = 1
    shown.update()
    assert shown.lines["xs"] == [[10.0, 11.0], [10.0]]


def test_a_chosen_run_that_the_scheduler_forgets_is_chosen_no_more(shown):
    shown.update()
    shown.one(MultiChoice).value = ["a", "c"]
    shown.update()
    del shown.known["c"]
    shown.update()
    assert (shown.one(MultiChoice).value, shown.is_compared) == (["a"], False)


def test_a_name_is_no_html_on_the_page(shown):
    name = "<img src=x onerror=alert(1)>"
    shown.known[name] = told(name, 1.0)
    shown.update()
    assert shown.one(MultiChoice).options[-1] == (name, "&lt;img src=x onerror=alert(1)&gt;")
    shown.one(MultiChoice).value = ["a", name]
    shown.update()
    assert shown.lines["ys"] == [[3.0, 2.0], [1.0]]


def test_with_one_run_there_is_nothing_to_choose(shown):
    del shown.known["b"], shown.known["c"]
    shown.update()
    assert not shown.panel.root.visible
