"""How a run goes, while somebody waits for it: drawn in a terminal or a notebook, and nothing elsewhere.

Knows nothing of Dask: whoever waits tells it the run's status, a few times a second.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self, TextIO

from rich.text import Text

from dask_train.report.fitted import Field, Wording, fitted
from dask_train.report.formats import brief_count_text, count_text, score_text, seconds_text
from dask_train.report.live import REDRAW_INTERVAL_S
from dask_train.report.notebook import NOTEBOOK_COLUMNS, NotebookText, in_notebook
from dask_train.report.redrawn import Redrawn

# Rates are those of the last seconds; shorter, they jump with every batch.
RATE_OVER_S = 5.0
# What a score carries besides the values that were reported.
_RESERVED = frozenset({"role", "rank", "attempt", "time"})


def check_progress(progress: object, *, waits: bool) -> bool | None:
    """The argument ``progress``, if it can be.

    Parameters
    ----------
    progress
        As the user gave it.
    waits
        Whether there will be somebody who waits, and can draw.

    Raises
    ------
    TypeError, ValueError
        It is neither None nor a bool; it is True where nobody waits.
    """
    if progress is not None and not isinstance(progress, bool):
        raise TypeError(f"progress is {progress!r}; pass True, False, or None (shown in terminals and notebooks).")
    if progress and not waits:
        raise ValueError("progress=True needs train to wait: with wait=False, or an asynchronous client, ask status().")
    return progress


class RunDisplay:
    """Shows a run's progress; a context manager that leaves the terminal clean however it is left.

    Parameters
    ----------
    progress
        Whether to; None and True draw in a terminal and in a notebook, and nothing where there is neither.
    file
        The terminal; None is the standard error of the moment.
    clock
        Monotonic seconds.

    Attributes
    ----------
    shown
        Whether anything is drawn.

    Notes
    -----
    No thread is started, and at most four times a second is drawn. What the program prints to the same terminal
    meanwhile appears above.
    """

    def __init__(
        self,
        progress: bool | None = None,
        *,
        file: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._file = sys.stderr if file is None else file
        self._wording = Wording(self._file)
        self._clock = clock
        self._begun = clock()
        self._drawn_at: float | None = None
        self._status: Mapping[str, Any] = {}
        self._counts: deque[tuple[float, int, int]] = deque()
        self._notebook = NotebookText()
        self._is_notebook = progress is not False and in_notebook()
        wanted = progress is not False and not self._is_notebook
        self._redrawn = Redrawn(self._file, self._rendered, wanted=wanted, force_terminal=True)
        self.shown = self._is_notebook or self._redrawn.is_shown

    def __enter__(self) -> Self:
        self._begun = self._clock()
        self._redrawn.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._redrawn.stop()
        if self._is_notebook and self._status:
            self._draw_in_notebook()  # its last state stays there

    def update(self, status: Mapping[str, Any]) -> None:
        """Show how the run is, unless that was done just now.

        Parameters
        ----------
        status
            As ``Run.status()``, with ``num_alive`` (how many roles there are), ``training`` (the names of the roles
            whose scores count) and ``last_scores`` (triples of role, rank and score).
        """
        now = self._clock()
        self._status = status
        batches = sum(role["num_batches"] for role in status["roles"] if role["role"] in status["training"])
        self._counts.append((now, status["num_scores"], batches))
        while now - self._counts[0][0] > RATE_OVER_S:
            self._counts.popleft()
        if not self.shown or (self._drawn_at is not None and now - self._drawn_at < REDRAW_INTERVAL_S):
            return
        self._drawn_at = now
        if self._redrawn.is_shown:
            self._redrawn.refresh()
        else:
            self._draw_in_notebook()

    def print_above(self, line: str) -> None:
        """Leave a line in the terminal that stays; its colours are kept, what moves the cursor is not."""
        self._redrawn.console.print(Text.from_ansi(line, end=""), soft_wrap=True)

    # What is drawn

    def lines(self, width: int) -> list[str]:
        """The progress as text, no line wider than ``width`` columns: the figures, then what is waited for."""
        fields = fitted(self._fields(), width, self._wording.joined)
        texts = [self._wording.joined(fields)]
        if self._status.get("waiting"):
            texts.append(f"waiting: {self._wording.writable(self._status['waiting'])}")
        drawn = [Text(text) for text in texts]
        for text in drawn:
            text.truncate(width, overflow="ellipsis")
        return [text.plain for text in drawn]

    def _rendered(self, width: int) -> Text:
        lines = self.lines(width)
        text = Text("\n".join(lines), no_wrap=True, overflow="ellipsis", end="")
        text.stylize("bold cyan", 0, min(len(lines[0]), len(self._phase())))
        text.stylize("dim", len(lines[0]))
        return text

    def _draw_in_notebook(self) -> None:
        self._notebook.show("\n".join(self.lines(NOTEBOOK_COLUMNS)))

    def _phase(self) -> str:
        return self._wording.writable(self._status.get("phase", "starting"))

    def _fields(self) -> list[Field]:
        """The figures in the order in which they are read; what is not known yet is left out."""
        status, elapsed_s = self._status, self._clock() - self._begun
        fields = [Field(0, self._phase(), self._phase())]
        if roles := status.get("roles"):
            alive = f"{status['num_alive']} of {len(roles)}"
            fields.append(Field(3, f"{alive} roles", alive.replace(" of ", "/")))
        fields += self._score_fields()
        for rank, rate, unit in zip((6, 4), self.rates(), ("scores", "batches"), strict=True):
            if rate > 0:
                of = count_text(rate) if rate >= 10 else f"{rate:.1f}"
                fields.append(Field(rank, f"{of} {unit}/s", f"{brief_count_text(rate)} {unit}/s"))
        fields.append(Field(1, seconds_text(elapsed_s), f"{elapsed_s:.0f} s"))
        return fields

    def _score_fields(self) -> list[Field]:
        """The latest score of the training roles, then that of another role."""
        scores = sorted(self._status.get("last_scores", ()), key=lambda told: told[2]["time"], reverse=True)
        training = self._status.get("training", ())
        fields = []
        for rank, inside in ((2, True), (5, False)):
            told = next((told for told in scores if (told[0] in training) is inside), None)
            values = {} if told is None else _numbers(told[2])
            text = "  ".join(f"{name} {score_text(value)}" for name, value in values.items())
            brief = "  ".join(f"{name} {value:.3g}" for name, value in list(values.items())[:1])
            if told is not None and text:
                before = "" if inside else f"{told[0]} "
                fields.append(Field(rank, before + text, before + brief))
        return fields

    def rates(self) -> tuple[float, float]:
        """Scores and batches a second over the last seconds; 0 where a second has not passed yet."""
        if not self._counts:
            return 0.0, 0.0
        (since, *before), (now, *after) = self._counts[0], self._counts[-1]
        if now - since < 1.0:
            return 0.0, 0.0
        # A role that starts again counts its batches from 0.
        scores, batches = (max(0, b - a) / (now - since) for a, b in zip(before, after, strict=True))
        return scores, batches


def _numbers(score: Mapping[str, Any]) -> dict[str, float]:
    return {
        name: value
        for name, value in score.items()
        if name not in _RESERVED and isinstance(value, int | float) and not isinstance(value, bool)
    }
