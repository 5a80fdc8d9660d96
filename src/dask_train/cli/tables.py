"""Tables for people: drawn in a terminal, whole lines with aligned columns where a program or a file reads."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from dask_train.report.harmless import harmless

# A wider cell is broken in a terminal.
_MOST_KEPT_WHOLE = 40


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, wraps: int, console: Console) -> None:
    """Print rows under their columns.

    Parameters
    ----------
    columns
        Their headings.
    rows
        Texts.
    wraps
        Which column is broken where a terminal is too narrow; the others stay whole.
    console
        Of standard output.
    """
    if not console.is_terminal:
        _print_plainly(columns, rows, console)
        return
    table = Table(box=None, header_style="dim", pad_edge=False)
    for i, column in enumerate(columns):
        widest = max((len(line) for row in rows for line in row[i].splitlines()), default=0)
        # Not by `min_width`: then rich 15.0 gives the other columns too much, and cuts what is too wide off.
        table.add_column(column, no_wrap=i != wraps and widest <= _MOST_KEPT_WHOLE, overflow="fold")
    for row in rows:
        table.add_row(*(Text(harmless(cell)) for cell in row))
    console.print(table)


def print_facts(facts: Sequence[tuple[str, str]], *, console: Console) -> None:
    """Print names with their values, a line each; in a terminal a long value is wrapped to the right of its name."""
    if not console.is_terminal:
        width = max(len(name) for name, _ in facts)
        lines = [(name, harmless(" ".join(value.split()))) for name, value in facts]
        console.file.writelines(f"{name:<{width}}  {value}\n" for name, value in lines)
        return
    grid = Table.grid(padding=(0, 2))
    for name, value in facts:
        grid.add_row(Text(name, "dim"), Text(harmless(value)))
    console.print(grid)


def _print_plainly(columns: Sequence[str], rows: Sequence[Sequence[str]], console: Console) -> None:
    cells = [list(columns), *([harmless(" ".join(cell.split())) for cell in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(columns))]
    for row in cells:
        line = "  ".join(f"{cell or '-':<{width}}" for cell, width in zip(row, widths, strict=True))
        console.file.write(f"{line.rstrip()}\n")
