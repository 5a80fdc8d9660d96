"""The plug-in with the page: what it weighs, and where it has no place."""

from __future__ import annotations

import sys
import zlib
from pathlib import Path
from types import SimpleNamespace

from distributed.protocol.pickle import dumps

from dask_train import dashboard
from dask_train.cluster.by_value import ByValue
from dask_train.dashboard.plugin import DashboardPlugin
from dask_train.scheduler.plugin import TrainPlugin


def test_it_is_small():
    pickled = dumps(ByValue(DashboardPlugin(), dashboard))
    by_machine = str(Path(dashboard.__file__).parents[2]).encode()  # the folder of the sources
    assert len(zlib.compress(pickled.replace(by_machine, b""), 9)) < 100_000, "as the others that a scheduler gets"


def test_without_bokeh_and_prometheus_runs_go_on(a_scheduler, monkeypatch, caplog):
    scheduler = a_scheduler(a=1)
    scheduler.install(TrainPlugin())
    for name in ("bokeh", "prometheus_client"):
        monkeypatch.setattr(sys.modules[DashboardPlugin.__module__], "find_spec", lambda _name: None)
        monkeypatch.setitem(sys.modules, name, None)
    scheduler.install(DashboardPlugin())
    assert caplog.records == []


def test_what_it_does_not_find_costs_the_page_only(a_scheduler, caplog):
    scheduler = a_scheduler(a=1)
    scheduler.http_application = SimpleNamespace(applications=[])
    scheduler.install(DashboardPlugin())
    assert "There is no page of runs" in caplog.text
