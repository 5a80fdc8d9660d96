"""The trials of a search while they are trained: a table in a terminal, a line for each that ends elsewhere.

Knows neither Dask nor Optuna: whoever searches tells it the trials, a few times a second.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Protocol, Self, TextIO

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from dask_train.report.fitted import Wording
from dask_train.report.formats import score_text, seconds_text
from dask_train.report.live import REDRAW_INTERVAL_S
from dask_train.report.notebook import NOTEBOOK_COLUMNS, NotebookText, in_notebook
from dask_train.report.redrawn import Redrawn

# Trials that are shown: those that are trained, the best one, and the last that ended, up to so many rows.
MOST_ROWS = 12
_STYLES = {"COMPLETE": "", "PRUNED": "yellow", "FAIL": "red", "running": "cyan"}


class EndedTrial(Protocol):
    """A trial that has ended."""

    @property
    def number(self) -> int:
        """Of the trial."""

    @property
    def state(self) -> str:
        """COMPLETE, PRUNED or FAIL."""

    @property
    def params(self) -> dict[str, Any]:
        """What was tried."""

    @property
    def value(self) -> float | None:
        """Its value, if it has one."""

    @property
    def seconds(self) -> float:
        """How long it took."""

    @property
    def error(self) -> str:
        """Why it failed; empty where it did not."""


class RunningTrial(Protocol):
    """A trial that is trained; ``trial`` has a number and params, ``began`` are monotonic seconds."""

    trial: Any
    began: float
    scores: dict[str, Any]


class SearchDisplay:
    """Shows trials; a context manager that leaves the terminal clean however it is left.

    Parameters
    ----------
    progress
        Whether to; None does in a terminal and a notebook; True writes lines elsewhere, too.
    metric
        The score that counts.
    trials
        How many there will be.
    file
        The terminal; None is the standard error of the moment.
    clock
        Monotonic seconds.
    """

    def __init__(
        self,
        progress: bool | None = None,
        *,
        metric: str,
        trials: int,
        file: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._file = sys.stderr if file is None else file
        self._wording = Wording(self._file)
        self._metric, self._trials, self._clock = metric, trials, clock
        self._begun, self._drawn_at, self._num_written = clock(), -REDRAW_INTERVAL_S, 0
        self._ended: Sequence[EndedTrial] = ()
        self._running: Sequence[RunningTrial] = ()
        self._best: EndedTrial | None = None
        self._is_notebook = progress is not False and in_notebook()
        self._notebook = NotebookText()
        wanted = progress is not False and not self._is_notebook
        self._redrawn = Redrawn(self._file, self._drawn, wanted=wanted, force_terminal=None)
        self._writes = progress is True and not self._is_notebook and not self._redrawn.is_shown

    def __enter__(self) -> Self:
        self._begun = self._clock()
        self._redrawn.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._redrawn.stop()
        if self._is_notebook:
            self._draw_in_notebook()  # its last state stays there

    def update(
        self, ended: Sequence[EndedTrial], running: Sequence[RunningTrial], best: EndedTrial | None = None
    ) -> None:
        """Show how the search is, unless that was done just now.

        Parameters
        ----------
        ended, running
            The trials, in the order in which they ended and began.
        best
            The best one of those that ended, if any.
        """
        self._ended, self._running, self._best = ended, running, best
        if self._writes:
            for trial in ended[self._num_written :]:
                self._file.write(self._wording.writable(self.line(trial)) + "\n")
            self._num_written = len(ended)
            self._file.flush()
        now = self._clock()
        if now - self._drawn_at < REDRAW_INTERVAL_S:
            return
        self._drawn_at = now
        if self._redrawn.is_shown:
            self._redrawn.refresh()
        elif self._is_notebook:
            self._draw_in_notebook()

    def line(self, trial: EndedTrial) -> str:
        """One trial that has ended, as a line."""
        told = f"{self._metric} {score_text(trial.value)}" if trial.value is not None else trial.error
        state = {"COMPLETE": "done", "PRUNED": "pruned", "FAIL": "failed"}[trial.state]
        return f"trial {trial.number} {state} after {seconds_text(trial.seconds)}: {told}; {_params(trial.params)}"

    def _summary(self) -> str:
        counts = {state: sum(trial.state == state for trial in self._ended) for state in ("COMPLETE", "PRUNED", "FAIL")}
        parts = [f"{len(self._ended)} of {self._trials} trials", f"{len(self._running)} running"]
        parts += [
            f"{counts[state]} {name}" for state, name in (("PRUNED", "pruned"), ("FAIL", "failed")) if counts[state]
        ]
        if self._best is not None and self._best.value is not None:
            parts.append(f"best {self._metric} {score_text(self._best.value)} (trial {self._best.number})")
        parts.append(seconds_text(self._clock() - self._begun))
        return ", ".join(parts)

    def _drawn(self, _: int) -> RenderableType:
        return Group(self._table(), Text(self._wording.writable(self._summary()), overflow="ellipsis", no_wrap=True))

    def _table(self) -> Table:
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
        for name in ("trial", "state", self._metric, "epoch", "time", "parameters"):
            table.add_column(name, no_wrap=True, overflow="ellipsis")
        for cells, style in self._rows():
            table.add_row(*(Text(self._wording.writable(cell)) for cell in cells), style=style)
        return table

    def _rows(self) -> list[tuple[tuple[str, ...], str]]:
        room = max(1, MOST_ROWS - len(self._running))
        shown = list(self._ended[-room:])
        if self._best is not None and self._best not in shown:
            shown = [self._best, *shown[1:]]
        rows: list[tuple[tuple[str, ...], str]] = []
        for trial in shown:
            is_best = trial is self._best
            value = "" if trial.value is None else score_text(trial.value)
            state = "best" if is_best else {"COMPLETE": "done", "PRUNED": "pruned", "FAIL": "failed"}[trial.state]
            told = trial.error or _params(trial.params)
            cells = (str(trial.number), state, value, "", seconds_text(trial.seconds), told)
            rows.append((cells, "bold green" if is_best else _STYLES[trial.state]))
        for running in self._running:
            rows.append((self._running_cells(running), _STYLES["running"]))
        return rows

    def _running_cells(self, running: RunningTrial) -> tuple[str, ...]:
        scores: Mapping[str, Any] = running.scores
        value = scores.get(self._metric)
        epoch = str(scores["epoch"] + 1) if "epoch" in scores else ""
        told = "" if value is None else score_text(value)
        seconds = seconds_text(max(0.0, self._clock() - running.began))
        return str(running.trial.number), "running", told, epoch, seconds, _params(running.trial.params)

    def _draw_in_notebook(self) -> None:
        console = Console(width=NOTEBOOK_COLUMNS, no_color=True, force_jupyter=False, highlight=False)
        with console.capture() as capture:
            console.print(self._drawn(NOTEBOOK_COLUMNS))
        self._notebook.show(capture.get())


def _params(params: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={score_text(v) if isinstance(v, float) else v}" for name, v in params.items())
