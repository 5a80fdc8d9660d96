"""Where progress is shown, the same for all verbs: in a terminal, in a notebook, or as lines where asked for."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self, TextIO, cast

from rich.console import RenderableType
from rich.text import Text

from dask_train.cards import Card, in_notebook
from dask_train.printing import SafeFile
from dask_train.report.fitted import REDRAW_INTERVAL_S, LineField, Redrawn, Wording, fitted
from dask_train.report.notebook import NOTEBOOK_COLUMNS, NotebookOutput

# How often a line is written where nothing can be drawn again, as in the log of a batch job, if that was asked for.
WRITE_INTERVAL_S = 10.0
# The same by default: a short job writes nothing, and a long one a line a minute.
FIRST_LINE_S, QUIET_INTERVAL_S = 10.0, 60.0
# A log has no width; lines are cut so that a person can read them.
LOG_COLUMNS = 200


class Display:
    """Shows how something goes; a context manager that leaves the terminal clean however it is left.

    Parameters
    ----------
    progress
        Whether to. Default: draw in a terminal and in a notebook; where there is neither, as in a log file, write a
        line after 10 seconds and then one a minute. With True, write a line there every 10 seconds from the beginning.
    file
        The terminal; None is the standard error of the moment.
    clock
        Monotonic seconds.
    keeps_colours
        Whether what is printed above keeps its colours in any case; else the file is asked.
    redraws
        False never draws in a terminal, and writes lines there as elsewhere: a debugger may ask there meanwhile.

    Attributes
    ----------
    shown
        Whether anything is drawn or written.

    Notes
    -----
    A subclass has what it draws before it calls this constructor: a terminal asks for it at once.

    No thread is started, and at most four times a second is drawn. What the program prints to the same terminal
    meanwhile appears above.
    """

    def __init__(
        self,
        progress: bool | None = None,
        *,
        file: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
        keeps_colours: bool = True,
        redraws: bool = True,
    ) -> None:
        self._file = cast(TextIO, SafeFile(sys.stderr if file is None else file))
        self._wording = Wording(self._file)
        self._clock = clock
        self._begun = clock()
        self._drawn_at: float | None = None
        self._notebook = NotebookOutput()
        self._is_notebook = progress is not False and in_notebook()
        wanted = redraws and progress is not False and not self._is_notebook
        force = True if keeps_colours else None
        self._redrawn = Redrawn(self._file, self._rendered, wanted=wanted, force_terminal=force)
        self._is_asked = progress is True
        is_log = progress is None and not self._file.isatty()
        self._writes = (self._is_asked or is_log) and not self._is_notebook and not self._redrawn.is_shown
        self.shown = self._is_notebook or self._redrawn.is_shown or self._writes

    def __enter__(self) -> Self:
        self._begun = self._clock()
        self._redrawn.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._redrawn.stop()
        if self._is_notebook and self._drawn_at is not None:
            self._draw_in_notebook()  # its last state stays there
        if self._writes and self._drawn_at is not None:
            self._write()

    # Seconds before a notebook shows it.
    _first_s = 0.0

    # What is drawn

    def _fields(self) -> Sequence[LineField]:
        """Return the figures in the order in which they are read; what is not known yet is left out."""
        raise NotImplementedError

    def _below(self) -> Sequence[str]:
        """Lines below the figures."""
        return ()

    def _card(self) -> Card:
        """Return the same for a notebook."""
        raise NotImplementedError

    def html(self) -> str:
        """Return the progress as a notebook has it."""
        return self._card().html()

    def lines(self, width: int) -> list[str]:
        """Return the progress as text, no line wider than ``width`` columns: the figures, then what is below them."""
        fields = fitted(self._fields(), width, self._wording.joined)
        drawn = [Text(text) for text in (self._wording.joined(fields), *map(self._wording.writable, self._below()))]
        for text in drawn:
            text.truncate(width, overflow="ellipsis")
        return [text.plain for text in drawn]

    def _rendered(self, width: int) -> RenderableType:
        lines = self.lines(width)
        text = Text("\n".join(lines), no_wrap=True, overflow="ellipsis", end="")
        text.stylize("bold cyan", 0, min(len(lines[0]), len(self._wording.writable(self._fields()[0].text))))
        text.stylize("dim", len(lines[0]))
        return text

    # Where

    def _draw(self) -> None:
        """Show how it is now, unless that was done just now."""
        now = self._clock()
        if not self.shown or now < self._next_at():
            return
        self._drawn_at = now
        if self._redrawn.is_shown:
            self._redrawn.refresh()
        elif self._writes:
            self._write()
        else:
            self._draw_in_notebook()

    def _next_at(self) -> float:
        """Return when it may be shown again."""
        if self._drawn_at is None:
            is_late = self._writes and not self._is_asked
            return self._begun + (FIRST_LINE_S if is_late else self._first_s if self._is_notebook else 0.0)
        if not self._writes:
            return self._drawn_at + REDRAW_INTERVAL_S
        return self._drawn_at + (WRITE_INTERVAL_S if self._is_asked else QUIET_INTERVAL_S)

    def _draw_in_notebook(self) -> None:
        self._notebook.show("\n".join(self.lines(NOTEBOOK_COLUMNS)), self.html())

    def _write(self) -> None:
        self._file.write("\n".join(self._in_log()) + "\n")
        self._file.flush()

    def _in_log(self) -> list[str]:
        """Return the lines for a log."""
        return self.lines(LOG_COLUMNS)

    def print_above(self, line: str) -> None:
        """Leave a line in the terminal that stays; its colours are kept, what moves the cursor is not."""
        self._redrawn.console.print(Text.from_ansi(line, end=""), soft_wrap=True)


def facts_of(fields: Sequence[LineField]) -> list[tuple[str, str]]:
    """Figures as a card has them: those after the first, which is its title, in a line of their own."""
    return [("", " · ".join(field.text for field in fields[1:]))] if len(fields) > 1 else []
