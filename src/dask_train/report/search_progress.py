"""The trials of a search while they are trained: a table in a terminal, a line for each that ends elsewhere.

Knows neither Dask nor Optuna: the search passes the trials, a few times a second.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from rich import table as rich_table
from rich.console import Console, Group, RenderableType
from rich.text import Text

from dask_train.cards import Card, CardTable
from dask_train.report.display import Display, facts_of
from dask_train.report.fitted import LineField, fitted
from dask_train.report.formats import score_text, seconds_text

# Trials that are shown: those that are trained, the best one, and the last that ended, up to this many rows.
MOST_ROWS = 12
_STYLES = {"COMPLETE": "", "PRUNED": "yellow", "FAIL": "red", "running": "cyan"}


class EndedTrial(Protocol):
    """A trial that has ended."""

    @property
    def number(self) -> int:
        """The number of the trial."""

    @property
    def state(self) -> str:
        """COMPLETE, PRUNED or FAIL."""

    @property
    def params(self) -> dict[str, Any]:
        """The parameters that were tried."""

    @property
    def value(self) -> float | None:
        """The value of the trial, if it has one."""

    @property
    def seconds(self) -> float:
        """How long it took."""

    @property
    def error(self) -> str:
        """Why it failed; empty if it did not."""


class RunningTrial(Protocol):
    """A trial that is trained; ``began`` are monotonic seconds."""

    number: int
    params: dict[str, Any]
    began: float
    scores: dict[str, Any]


class SearchDisplay(Display):
    """Shows trials; as :class:`~dask_train.report.display.Display`.

    Parameters
    ----------
    progress
        Whether to. Default: in a terminal and a notebook, and elsewhere a line of figures now and then. With True,
        write a line for each trial there.
    metric
        The score that counts.
    trials
        How many there will be.
    **settings
        As there.
    """

    def __init__(self, progress: bool | None = None, *, metric: str, trials: int, **settings: Any) -> None:
        self._metric, self._trials = metric, trials
        self._num_written = 0
        self._ended: Sequence[EndedTrial] = ()
        self._running: Sequence[RunningTrial] = ()
        self._best: EndedTrial | None = None
        super().__init__(progress, keeps_colours=False, **settings)

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
        if self._writes and self._is_asked:
            self._write()
        else:
            self._draw()

    def _write(self) -> None:
        """Write a line for each trial that has ended since; where that was not asked for, one of figures."""
        if not self._is_asked:
            super()._write()
            return
        for trial in self._ended[self._num_written :]:
            self._file.write(self._wording.writable(self.line(trial)) + "\n")
        self._num_written = len(self._ended)
        self._file.flush()

    def line(self, trial: EndedTrial) -> str:
        """Return one trial that has ended, as a line."""
        outcome = f"{self._metric} {score_text(trial.value)}" if trial.value is not None else trial.error
        state = {"COMPLETE": "done", "PRUNED": "pruned", "FAIL": "failed"}[trial.state]
        return f"trial {trial.number} {state} after {seconds_text(trial.seconds)}: {outcome}; {_params(trial.params)}"

    def _fields(self) -> list[LineField]:
        counts = {state: sum(trial.state == state for trial in self._ended) for state in ("COMPLETE", "PRUNED", "FAIL")}
        parts = [f"{len(self._ended)} of {self._trials} trials", f"{len(self._running)} running"]
        parts += [
            f"{counts[state]} {name}" for state, name in (("PRUNED", "pruned"), ("FAIL", "failed")) if counts[state]
        ]
        if self._best is not None and self._best.value is not None:
            parts.append(f"best {self._metric} {score_text(self._best.value)} (trial {self._best.number})")
        left_s, elapsed_s = self._left_s(), self._clock() - self._begun
        parts += [] if left_s is None else [f"{seconds_text(left_s)} left"]
        return [LineField(rank, part, part) for rank, part in enumerate([*parts, seconds_text(elapsed_s)])]

    def _left_s(self) -> float | None:
        """Seconds until all trials have ended, at the speed so far; None before one has."""
        elapsed_s = self._clock() - self._begun
        if not self._ended or len(self._ended) >= self._trials or elapsed_s <= 0:
            return None
        return (self._trials - len(self._ended)) * elapsed_s / len(self._ended)

    def _in_log(self) -> list[str]:
        return [self._wording.joined(self._fields())]

    def lines(self, width: int) -> list[str]:
        """Return the table and what is below it, as text."""
        # Kernels of Jupyter set FORCE_COLOR, and a page shows escape codes as they are.
        console = Console(width=width, force_terminal=False, force_jupyter=False, highlight=False, color_system=None)
        with console.capture() as capture:
            console.print(self._rendered(width))
        return capture.get().splitlines()

    def _rendered(self, width: int) -> RenderableType:
        summary = self._wording.joined(fitted(self._fields(), width, self._wording.joined))
        return Group(self._table(), Text(summary, overflow="ellipsis", no_wrap=True))

    def _card(self) -> Card:
        rows = [cells for cells, _ in self._rows()]
        return Card(
            kind="",
            name=self._fields()[0].text,
            facts=facts_of(self._fields()),
            tables=[CardTable(columns=self._columns(), rows=rows)],
            done=min(1.0, len(self._ended) / self._trials) if self._trials else None,
        )

    def _table(self) -> rich_table.Table:
        table = rich_table.Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
        for name in self._columns():
            table.add_column(name, no_wrap=True, overflow="ellipsis")
        for cells, style in self._rows():
            table.add_row(*(Text(self._wording.writable(cell)) for cell in cells), style=style)
        return table

    def _columns(self) -> tuple[str, ...]:
        return ("trial", "state", self._metric, "epoch", "time", "parameters")

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
            details = trial.error or _params(trial.params)
            cells = (str(trial.number), state, value, "", seconds_text(trial.seconds), details)
            rows.append((cells, "bold green" if is_best else _STYLES[trial.state]))
        for running in self._running:
            rows.append((self._running_cells(running), _STYLES["running"]))
        return rows

    def _running_cells(self, running: RunningTrial) -> tuple[str, ...]:
        scores: Mapping[str, Any] = running.scores
        value = scores.get(self._metric)
        epoch = str(scores["epoch"] + 1) if "epoch" in scores else ""
        score = "" if value is None else score_text(value)
        seconds = seconds_text(max(0.0, self._clock() - running.began))
        return str(running.number), "running", score, epoch, seconds, _params(running.params)


def _params(params: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={score_text(v) if isinstance(v, float) else v}" for name, v in params.items())
