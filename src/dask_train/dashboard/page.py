"""The page itself, in bokeh: runs, the selected one's curves, times and roles, searches, predictions, who waits."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from html import escape
from typing import Any

from .actions import PageReader, Readers
from .compared import with_logged
from .comparison import Comparison
from .controls import Stacks, StopButton
from .curves import CurvePanel
from .records import Records
from .role_charts import RoleCharts
from .search_charts import SearchCharts
from .tables import (
    ROLE_COLUMNS,
    RUN_COLUMNS,
    WAITING_COLUMNS,
    default_run,
    roles_table,
    runs_table,
    waiting_table,
    words_on,
)
from .theme import set_theme
from .traces import Trace
from .widgets import ScrolledTable, heading, set_value
from .workers import PREDICTION_COLUMNS, WORKER_COLUMNS, Rates, predictions_table, workers_table

logger = logging.getLogger("distributed.scheduler.train")
# How often an open page looks; a driver tells the scheduler four times a second what is new.
UPDATE_MS = 500


def page_document(records: Records, readers: Readers, extra: dict[str, Any], doc: Any) -> None:
    """Fill the page that has Dask's navigation bar."""
    from distributed.dashboard.components.scheduler import env

    doc.template = env.get_template("simple.html")
    doc.template_variables.update(extra)
    plot_document(records, readers, doc)


def plot_document(records: Records, readers: Readers, doc: Any) -> None:
    """Fill the page without the bar, as JupyterLab's extension shows it in a pane."""
    doc.title = "Dask: Train"
    page = Page(records, readers.admit(records.scheduler, doc))
    page.update()
    doc.add_root(page.root)
    set_theme(doc)
    doc.add_periodic_callback(page.update, UPDATE_MS)


class Page:
    """What one reader sees; lives as long as the reader's page is open.

    Parameters
    ----------
    records
        The scheduler's runs.
    reader
        What this reader may do.
    """

    def __init__(self, records: Records, reader: PageReader) -> None:
        from bokeh.layouts import column
        from bokeh.models import Div, Select

        self._records = records
        self._chosen = ""
        self._complained = False
        self._runs, self._roles, self._waiting = (
            ScrolledTable(RUN_COLUMNS),
            ScrolledTable(ROLE_COLUMNS),
            ScrolledTable(WAITING_COLUMNS),
        )
        self._select = Select(title="Run", width=320, options=[])
        self._select.on_change("value", self._choose)
        self._runs.source.selected.on_change("indices", self._click)
        self._none_waits, self._words = Div(text="No run waits for room."), Div(text="", visible=False)
        self._stop = StopButton(reader) if reader.may_stop else None
        self._curves, self._charts, self._stacks = CurvePanel(), RoleCharts(), Stacks(reader)
        self._searches, self._elsewhere, self._comparison = SearchCharts(), Elsewhere(records), Comparison()
        chosen = column(self._select, *([self._stop.root] if self._stop else []), styles={"flex-flow": "row wrap"})
        self.root = column(
            heading("Runs"),
            self._runs.root,
            heading("Waiting for room"),
            self._none_waits,
            self._waiting.root,
            self._comparison.root,
            heading("One run"),
            chosen,
            self._words,
            self._curves.root,
            self._charts.root,
            heading("Roles of this run"),
            self._roles.root,
            self._stacks.root,
            self._searches.root,
            self._elsewhere.root,
            sizing_mode="stretch_width",
        )

    def update(self) -> None:
        """Show what is new."""
        now, records = time.time(), self._records
        runs = records.runs()
        self._runs.show(runs_table(runs, records.traces, now))
        waiting = waiting_table(records.waiting(), records.placement_queue.why, now)
        set_value(self._waiting.root, "visible", self._waiting.show(waiting) > 0)
        set_value(self._none_waits, "visible", not waiting["run"])
        set_value(self._select, "options", [run.id for run in runs])
        run = next((run for run in runs if run.id == self._chosen), None) or default_run(runs, records.traces)
        if run is not None:
            set_value(self._select, "value", run.id)
        why = dict(zip(waiting["run"], waiting["why"], strict=True))
        words = "" if run is None else escape(words_on(run, why.get(run.id, "")))
        set_value(self._words, "text", words)
        set_value(self._words, "visible", bool(words))
        self._show(run, now)
        self._attempt(self._searches.update, records.searches, records.traces, "" if run is None else run.id)
        records.logged.look({run.id for run in runs})
        self._attempt(self._comparison.update, *with_logged(runs, records.traces, records.logged.runs), now)
        self._attempt(self._elsewhere.update, now)

    def _attempt(self, update: Callable[..., None], *given: Any) -> None:
        """Update a part of the page; one that can't show what there is leaves the others as they are."""
        try:
            update(*given)
        except Exception:
            if not self._complained:
                logger.exception("A part of the page of runs could not be shown.")
            self._complained = True

    def _show(self, run: Any | None, now: float) -> None:
        """Show one run."""
        name = "" if run is None else run.id
        trace = self._records.traces.get(name) or Trace()
        self._attempt(self._curves.update, name, trace)
        self._attempt(self._charts.update, run, trace, now)
        self._roles.show(roles_table(run, trace.usage, now))
        self._attempt(self._stacks.update, run, trace, now)
        if self._stop is not None:
            self._stop.update(run)

    def _choose(self, _name: str, _old: str, new: str) -> None:
        default = default_run(self._records.runs(), self._records.traces)
        self._chosen = "" if default is not None and default.id == new else new  # no choice follows the default

    def _click(self, _name: str, _old: list[int], new: list[int]) -> None:
        names = self._runs.source.data["run"]
        if new and new[0] < len(names):
            self._select.value = names[new[0]]


class Elsewhere:
    """What Dask workers do for the library besides runs.

    Attributes
    ----------
    root
        What is placed on the page; only seen where there is anything.
    """

    def __init__(self, records: Records) -> None:
        from bokeh.layouts import column

        self._scheduler, self._rates = records.scheduler, Rates()
        self._workers, self._predictions = ScrolledTable(WORKER_COLUMNS), ScrolledTable(PREDICTION_COLUMNS)
        self._of_predictions = column(
            heading("Predictions"), self._predictions.root, sizing_mode="stretch_width", visible=False
        )
        self._of_workers = column(
            heading("Model processes and memory"), self._workers.root, sizing_mode="stretch_width", visible=False
        )
        self.root = column(self._of_predictions, self._of_workers, sizing_mode="stretch_width")

    def update(self, now: float) -> None:
        """Show what is new."""
        workers = list(self._scheduler.workers.values())
        self._rates.look(workers, now)
        groups = getattr(self._scheduler, "task_groups", {})
        set_value(self._of_predictions, "visible", self._predictions.show(predictions_table(groups)) > 0)
        set_value(self._of_workers, "visible", self._workers.show(workers_table(workers, self._rates)) > 0)
