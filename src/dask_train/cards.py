"""How the library's values show themselves: readable text in a terminal, a small table or card in a notebook.

Knows nothing of the rest. A value says what there is to see in a :class:`Card`, once; text and HTML are made of that.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from dask_train.masking import masked

# Of longer tables the first rows are shown, and how many more there are.
MOST_ROWS = 24

# A number, perhaps with a unit, such as "1,100", "-0.5", "1e-07" or "2.5 s".
_NUMBER = re.compile(r"[-+]?[\d.,]+(e[-+]?\d+)?( ?[A-Za-z%]{1,3})?")

# Colours that can be read on white and on black: notebooks have both, and inherited letters follow them.
_LINE, _SOFT, _BAR = "rgba(128,128,128,0.35)", "opacity:0.7;font-weight:normal", "#56b4e9"
_TRACK = "border-radius:3px;height:6px"
# A long path in a fact is broken where the window is narrow; numbers of tables are not.
_BREAKS = "overflow-wrap:anywhere"
_CARD = (
    f"display:inline-block;border:1px solid {_LINE};border-radius:6px;padding:8px 14px;margin:2px 0;max-width:100%;"
    "box-sizing:border-box"
)
_TABLE = "border-collapse:collapse;margin:4px 0;font-size:90%"
_TEXT = "margin:4px 0;max-height:24em;overflow:auto;font-size:85%;background:none;white-space:pre"
_ROW = "background:none;border:0"
_CELL = (
    "padding:1px 14px 1px 0;border:0;background:none;vertical-align:top;max-width:36em;overflow-wrap:break-word;"
    "white-space:pre-line"
)


def in_notebook() -> bool:
    """Return whether this is a kernel of Jupyter, which draws, although its standard error is no terminal."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and type(ipython.get_ipython()).__name__ == "ZMQInteractiveShell"


@dataclass(frozen=True, kw_only=True)
class FoldedText:
    """A long text, such as a traceback, that a notebook shows when its title is clicked on.

    Attributes
    ----------
    title
        What it is.
    text
        Its lines.
    """

    title: str
    text: str

    def html(self) -> str:
        """Return the text as HTML."""
        return (
            f'<details><summary style="cursor:pointer">{_shown(self.title)}</summary>'
            f'<pre style="{_TEXT}">{_shown(self.text)}</pre></details>'
        )


@dataclass(frozen=True, kw_only=True)
class CardTable:
    """Rows under headings.

    Attributes
    ----------
    columns
        The headings.
    rows
        Texts; those of numbers are set to the right.
    title
        What they are of; with one, a notebook shows them when it is clicked on.
    most
        How many rows are shown.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""
    most: int = MOST_ROWS

    def html(self) -> str:
        """Return the table as HTML; every text is escaped."""
        right = [bool(self.rows) and all(_is_number(row[i]) for row in self.rows) for i in range(len(self.columns))]
        head = "".join(_cell("th", name, right[i], _SOFT) for i, name in enumerate(self.columns))
        body = "".join(
            f'<tr style="{_ROW}">{"".join(_cell("td", text, right[i]) for i, text in enumerate(row))}</tr>'
            for row in self.rows[: self.most]
        )
        left = len(self.rows) - self.most
        more = f'<div style="{_SOFT}">and {left:,} more</div>' if left > 0 else ""
        table = f'<table style="{_TABLE}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}'
        if not self.title:
            return table
        return f'<details><summary style="cursor:pointer">{escape(self.title)}</summary>{table}</details>'


@dataclass(frozen=True, kw_only=True)
class Card:
    """What there is to see of a value.

    Attributes
    ----------
    kind
        What it is, such as ``"FitResult"``.
    name
        Which one; may be empty.
    facts
        Names with their values, in the order in which they are read.
    tables
        More of it, for notebooks.
    folds
        Long texts, for notebooks.
    charts
        ``<svg>`` elements, for notebooks; not escaped.
    done
        The share that is done, from 0 to 1; None if there is no such thing.
    one_line
        Whether text has it in one line, as something small that lists are made of.
    """

    kind: str
    name: str = ""
    facts: Sequence[tuple[str, str]] = ()
    tables: Sequence[CardTable] = ()
    folds: Sequence[FoldedText] = ()
    charts: Sequence[str] = ()
    done: float | None = None
    one_line: bool = False

    def text(self) -> str:
        """Return the card as plain text without escape codes, with facts below each other or in one line."""
        title = f"{self.kind} {masked(self.name)}".rstrip()
        facts = [(name, masked(" ".join(value.split()))) for name, value in self.facts]
        if self.one_line:
            return f"<{title}: {', '.join(f'{name} {value}'.strip() for name, value in facts)}>"
        width = max((len(name) for name, _ in facts), default=0)
        return "\n".join([f"<{title}>", *(f"  {name:<{width}}  {value}" for name, value in facts)])

    def html(self) -> str:
        """Return the card as HTML that needs no script, no style sheet and no other file."""
        head = f"<b>{escape(self.kind)}</b> {_shown(self.name)}"
        rows = "".join(
            f'<tr style="{_ROW}">{_cell("th", name, False, _SOFT)}{_cell("td", value, False, _BREAKS)}</tr>'
            for name, value in self.facts
        )
        facts = f'<table style="{_TABLE}"><tbody>{rows}</tbody></table>' if rows else ""
        charts = "".join(f'<div style="flex:none">{chart}</div>' for chart in self.charts)
        charts = f'<div style="display:flex;flex-wrap:wrap;gap:12px;margin:4px 0">{charts}</div>' if charts else ""
        tables = "".join([table.html() for table in self.tables] + [fold.html() for fold in self.folds])
        return f'<div style="{_CARD}"><div>{head}</div>{self._bar()}{facts}{charts}{tables}</div>'

    def _bar(self) -> str:
        if self.done is None:
            return ""
        share = f"{100 * min(1.0, max(0.0, self.done)):.1f}%"
        return (
            f'<div role="progressbar" style="{_TRACK};background:{_LINE};min-width:24em;margin:5px 0">'
            f'<div style="{_TRACK};background:{_BAR};width:{share}"></div></div>'
        )


class CardMixin:
    """A value that shows itself as its card: ``repr`` in a terminal, HTML in a notebook."""

    def _card(self) -> Card:
        """Return what there is to see."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return self._card().text()

    def _repr_html_(self) -> str:
        return self._card().html()


def _shown(text: str) -> str:
    """Return a text as HTML, without secrets."""
    return escape(masked(text))


def _cell(tag: str, text: str, right: bool, style: str = "") -> str:
    aligned = "right;font-variant-numeric:tabular-nums" if right else "left"
    return f'<{tag} style="{_CELL};text-align:{aligned};{style}">{_shown(text)}</{tag}>'


def _is_number(text: str) -> bool:
    return not text or _NUMBER.fullmatch(text) is not None
