"""Figures in one line that must not be wider than a terminal: the least important ones go first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TextIO

from rich.cells import cell_len

# Columns kept free at the right: a line that fills the last one wraps in some terminals, and the two letters that a
# terminal echoes for Ctrl-C would push it onto the next, where no one erases it.
SPARE_COLUMNS = 3


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
