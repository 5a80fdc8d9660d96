"""Runs as the scheduler knows them, without a scheduler's process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from dask_train.dashboard.actions import PageReader
from dask_train.dashboard.records import Records
from dask_train.process.messages import to_plain
from dask_train.run.messages import RoleProcess
from dask_train.scheduler.plugin import TrainPlugin


@pytest.fixture(scope="session", name="reported")
def _reported() -> Callable[..., list[Any]]:
    return reported


def reported(*scores: dict[str, Any], rank: int = 0, attempt: int = 0) -> list[Any]:
    """An agent's event with the reports of a role."""
    place = {"role": "worker", "rank": rank, "attempt": attempt, "time": 1.0}
    return ["Reported", {"scores": [{**score, **place} for score in scores]}, ["worker", rank, attempt]]


@pytest.fixture(scope="session", name="summary_of")
def _summary_of() -> Callable[..., dict[str, Any]]:
    return summary_of


def summary_of(phase: str, *roles: tuple[int, int, int], **more: Any) -> dict[str, Any]:
    """What a driver notes; of its workers rank, attempt and batches."""
    told = [["worker", rank, phase, attempt, "tcp://h:1", 7, "reading", steps] for rank, attempt, steps in roles]
    return {"phase": phase, "roles": told, "last_scores": [], "losses": [], "outcome": "", **more}


@pytest.fixture
def plug(a_scheduler: Callable[..., Any]) -> TrainPlugin:
    """The plug-in for runs, on a scheduler with one Dask worker of one thread."""
    return a_scheduler(a=1).install(TrainPlugin())


@pytest.fixture
def records(plug: TrainPlugin) -> Records:
    """What a page of its dashboard hears."""
    return Records(plug.run_requests)


class Shown:
    """A page, and the run on it.

    Attributes
    ----------
    of
        The only role of the run.
    reader
        What the page's reader may do.
    """

    of = RoleProcess("worker", 0, 0)

    def __init__(self, plug: TrainPlugin, records: Records, *, may_act: bool = True) -> None:
        self.asks, self.records = plug.run_requests, records
        pytest.importorskip("bokeh")
        from dask_train.dashboard.page import Page

        self.reader = PageReader(may_ask=may_act, may_stop=may_act)
        self.page = Page(records, self.reader)

    def ask(self, handler: str, **message: Any) -> Any:
        return asyncio.run(getattr(self.asks, f"train_run_{handler}")(run="r", **message))

    def run(self) -> None:
        """A run of one worker that trains."""
        self.ask("open", client="me", info={}, lease_s=60.0, keys=[])
        self.ask("place", request="q", roles=[["worker", 0, {}]], on=None, timeout_s=0.0)
        self.ask("agent", agent="g", address="a")
        self.note("running")

    def note(self, phase: str, **more: Any) -> None:
        self.ask("note", summary=summary_of(phase, (0, 0, 3), **more))
        self.page.update()

    def tell(self, *messages: Any) -> None:
        events = [to_plain(message, self.of) for message in messages]
        number = self.asks.runs.by_id["r"].num_told.get("g", 0)
        self.ask("tell", agent="g", number=number, events=events, output=[], timeout_s=0.0)
        self.page.update()

    def all(self, kind: type) -> list[Any]:
        return list(self.page.root.select({"type": kind}))

    def data(self, name: str) -> Any:
        from bokeh.models import ColumnDataSource

        (found,) = [source.data for source in self.all(ColumnDataSource) if name in source.data]
        return found

    def button(self, words: str) -> Any:
        from bokeh.models import Button

        return next((button for button in self.all(Button) if words in button.label), None)

    def press(self, words: str) -> None:
        from bokeh.events import ButtonClick

        self.button(words)._trigger_event(ButtonClick(self.button(words)))


@pytest.fixture
def shown(plug: TrainPlugin, records: Records) -> Shown:
    """A page whose reader may stop runs."""
    return Shown(plug, records)


@pytest.fixture
def shown_to_others(plug: TrainPlugin, records: Records) -> Shown:
    """A page whose reader may not."""
    return Shown(plug, records, may_act=False)
