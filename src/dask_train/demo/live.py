"""The live line of a run: one line in a terminal that redraws itself, plain lines elsewhere.

Owns what the line says, how often, and that the terminal is left as it was found. Doesn't measure: the caller
passes the figures.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self, TextIO

from rich.text import Text

from dask_train.report.fitted import REDRAW_INTERVAL_S, LineField, Redrawn, Wording, fitted
from dask_train.report.formats import brief_count_text, count_text, seconds_text

PLAIN_INTERVAL_S = 1.0  # a log of a minute stays within a screen or two


@dataclass(frozen=True, kw_only=True, slots=True)
class DemoProgress:
    """How far a run is.

    Parameters
    ----------
    phase
        Current activity, such as ``"training"``.
    rows_prepared, rows_total
        Rows that are ready for training, of how many; a total of 0 means that it isn't known yet.
    rows_trained
        Rows trained so far, repeats counted.
    rows_per_s
        The speed of training now, in rows a second.
    score
        The latest score, None before the first.
    target
        The score at which the run stops, None if there is no such rule.
    elapsed_s
        Seconds since the start of the run.
    """

    phase: str
    rows_prepared: int
    rows_total: int
    rows_trained: int
    rows_per_s: float
    score: float | None
    target: float | None
    elapsed_s: float


class LiveLine:
    """Show a run's progress; a context manager that leaves the terminal clean however it is left.

    In a terminal one line is redrawn at most four times a second, never wider than the terminal: where room is short,
    numbers are rounded, then the least important figures go. Elsewhere (a pipe, a file, CI, a notebook) plain lines
    without control characters are written, at most one a second.

    Parameters
    ----------
    file
        Where to write; None is the standard output of the moment. Whether this is a terminal is asked of it alone:
        ``FORCE_COLOR`` and its like don't put control characters into a log.
    clock
        Monotonic seconds.

    Notes
    -----
    Safe to call from several threads. What the program itself prints to the same terminal meanwhile appears above the
    line. No thread is started: without updates the line stands still, which is what happened.

    Examples
    --------
    >>> with LiveLine() as line:
    ...     line.phase_done("prepared 1,100,000 rows", 12.3, "44 partitions")
    prepared 1,100,000 rows in 12.3 s (44 partitions)
    """

    def __init__(self, file: TextIO | None = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._file = sys.stdout if file is None else file
        self._wording = Wording(self._file)
        self._clock = clock
        self._lock = threading.RLock()
        self._progress: DemoProgress | None = None
        self._last_shown: float | None = None
        self._is_behind = False  # whether something newer than what is shown is known
        self._redrawn = Redrawn(self._file, self._drawn)

    def __enter__(self) -> Self:
        self._redrawn.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._redrawn.stop()

    def update(self, progress: DemoProgress) -> None:
        """Show how far the run is, unless something was shown just now.

        Parameters
        ----------
        progress
            The figures of the moment. In a terminal a new phase is shown at once; elsewhere what comes within a
            second of the last line is not written.
        """
        with self._lock:
            new_phase = self._progress is None or progress.phase != self._progress.phase
            self._progress = progress
            now = self._clock()
            interval_s = PLAIN_INTERVAL_S if not self._redrawn.is_shown else REDRAW_INTERVAL_S
            due = self._last_shown is None or now - self._last_shown >= interval_s
            self._is_behind = not due and not (new_phase and self._redrawn.is_shown)
            if self._is_behind:
                return
            self._last_shown = now
            if self._redrawn.is_shown:
                self._redrawn.refresh()
            else:
                self._write_plain(self._wording.joined(_fields(progress)))

    def phase_done(self, name: str, seconds: float, detail: str = "") -> None:
        """Leave a line that stays, such as ``prepared 1,100,000 rows in 12.3 s (44 partitions)``.

        Outside a terminal the figures that the phase ended with come before it, unless they were just shown.

        Parameters
        ----------
        name
            What was done, in the past tense.
        seconds
            How long it took.
        detail
            More about it, shown in brackets; empty shows none.
        """
        name, detail = self._wording.writable(name), self._wording.writable(detail)
        text = Text.assemble(name, " in ", (seconds_text(seconds), "bold"), (f" ({detail})" if detail else "", "dim"))
        with self._lock:
            if not self._redrawn.is_shown:
                if self._is_behind and self._progress is not None:
                    self._write_plain(self._wording.joined(_fields(self._progress)))
                    self._is_behind = False
                self._write_plain(text.plain)
            else:
                self._redrawn.console.print(text, soft_wrap=True)

    def _write_plain(self, line: str) -> None:
        self._file.write(self._wording.writable(line) + "\n")
        self._file.flush()

    def _drawn(self, width: int) -> Text:
        """Draw the line for the terminal as wide as it is now."""
        if self._progress is None:
            return Text("")
        fields = fitted(_fields(self._progress), width, self._wording.joined)
        text = Text(self._wording.joined(fields), no_wrap=True, overflow="ellipsis", end="")
        text.stylize("bold cyan", 0, len(self._wording.writable(fields[0].text)))
        text.truncate(width, overflow="ellipsis")
        return text


def _fields(progress: DemoProgress) -> list[LineField]:
    """Word the figures, in the order in which they are read; what isn't known yet is left out."""
    fields = [LineField(0, progress.phase, progress.phase)]
    training = progress.rows_trained > 0
    ready, trained, rate = progress.rows_prepared, progress.rows_trained, progress.rows_per_s
    total = f" of {count_text(progress.rows_total)}" if progress.rows_total > ready else ""
    brief_total = f" of {brief_count_text(progress.rows_total)}" if total else ""
    fields.append(
        LineField(
            6 if training else 2,
            f"{count_text(ready)}{total} rows prepared",
            f"{brief_count_text(ready)}{brief_total} ready",
        )
    )
    if training:
        fields.append(LineField(3, f"{count_text(trained)} rows trained", f"{brief_count_text(trained)} trained"))
    if rate > 0:
        fields.append(LineField(4, f"{count_text(rate)} rows/s", f"{brief_count_text(rate)}/s"))
    if progress.score is not None:
        fields.append(LineField(2, f"score {progress.score:.4f}", f"score {progress.score:.3f}"))
        if progress.target is not None:
            fields.append(LineField(5, f"target {progress.target:.4f}", f"to {progress.target:g}"))
    fields.append(LineField(1, seconds_text(progress.elapsed_s), f"{progress.elapsed_s:.0f} s"))
    return fields
