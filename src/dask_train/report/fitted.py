"""Lines at the bottom of a terminal: figures that fit into its width, the least important left out first.

They are redrawn in place, and leave the terminal as it was found.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TextIO

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.control import Control
from rich.live import Live
from rich.segment import ControlType

from dask_train.printing import SafeFile

# Columns kept free at the right: a line that fills the last one wraps in some terminals, and the two letters that a
# terminal echoes for Ctrl-C would push it onto the next, where no one erases it.
SPARE_COLUMNS = 3

REDRAW_INTERVAL_S = 0.25  # four a second: faster can't be read, and over ssh it is traffic
_ERASE_LINE = Control(ControlType.CARRIAGE_RETURN, (ControlType.ERASE_IN_LINE, 2))


@dataclass(frozen=True, slots=True)
class LineField:
    """A part of a line; where room is short, the brief wording is used, then the highest rank goes first."""

    rank: int
    text: str
    brief: str


def fitted(fields: Sequence[LineField], width: int, joined: Callable[[list[LineField]], str]) -> list[LineField]:
    """Choose the fields, and the words for them, that fit.

    Parameters
    ----------
    fields
        In the order in which they are read.
    width
        In terminal columns.
    joined
        Makes the line of them; the first one stays even where it is too wide.
    """
    left = list(fields)
    if cell_len(joined(left)) > width:
        left = [replace(field, text=field.brief) for field in left]
    while len(left) > 1 and cell_len(joined(left)) > width:
        left.remove(max(left, key=lambda field: field.rank))
    return left


class Wording:
    """Text as a file can take it.

    Parameters
    ----------
    file
        Asked for its encoding; UTF-8 where it has none.
    """

    def __init__(self, file: TextIO) -> None:
        self._encoding = getattr(file, "encoding", None) or "utf-8"

    def writable(self, text: str) -> str:
        """Replace what would move the cursor, and what the file's encoding doesn't have."""
        printable = "".join(letter if letter.isprintable() else " " for letter in text)
        return printable.encode(self._encoding, "replace").decode(self._encoding)

    def joined(self, fields: Sequence[LineField]) -> str:
        """Return the line of these fields."""
        separator = " · " if self.writable("·") == "·" else " | "
        return separator.join(self.writable(field.text) for field in fields)


class Redrawn:
    """What is drawn again whenever :meth:`refresh` is called; no thread is started.

    Parameters
    ----------
    file
        Where to draw. Whether it is a terminal is asked of it alone: ``FORCE_COLOR`` and its like don't put control
        characters into a log.
    drawn
        What to draw now, in that many columns.
    wanted
        False draws nothing anywhere.
    force_terminal
        Whether what is printed above keeps its colours; None asks the file.

    Attributes
    ----------
    console
        For its width, and for what is printed above and stays.
    is_shown
        Whether anything is drawn: not in a file, a pipe or a dumb terminal.
    """

    def __init__(
        self,
        file: TextIO,
        drawn: Callable[[int], RenderableType],
        *,
        wanted: bool = True,
        force_terminal: bool | None = None,
    ) -> None:
        is_terminal = file.isatty()
        self.console = Console(
            file=file,
            force_terminal=is_terminal if force_terminal is None else force_terminal,
            force_jupyter=False,
            highlight=False,
            markup=False,
            emoji=False,
        )
        self._live: Live | None = None
        self._is_cut = False
        if wanted and is_terminal and not self.console.is_dumb_terminal:
            self._live = Live(
                console=self.console,
                get_renderable=lambda: drawn(max(1, self.console.width - SPARE_COLUMNS)),
                auto_refresh=False,
                transient=True,
                # Only what goes to a terminal anyway: a standard output that the user sent to a file stays there.
                redirect_stdout=SafeFile(sys.stdout).isatty(),
                redirect_stderr=SafeFile(sys.stderr).isatty(),
            )
        self.is_shown = self._live is not None

    def start(self) -> None:
        """Begin to draw."""
        if self._live is not None:
            self._live.start()

    def refresh(self) -> None:
        """Draw again."""
        if self._live is not None:
            try:
                self._live.refresh()
            except BaseException:
                self._is_cut = True
                raise

    def stop(self) -> None:
        """Erase what was drawn."""
        if self._live is not None:
            try:
                self._live.stop()
            finally:
                # Not through the console: a Ctrl-C may have cut it between its buffer and the terminal, or cut `stop`.
                erase_line = str(_ERASE_LINE) if self._is_cut else ""
                self.console.file.write(erase_line + str(Control.show_cursor(True)))
                self.console.file.flush()
