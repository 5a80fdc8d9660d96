"""What the scheduler has on record of runs, as text for people: tables and facts.

They are drawn in a terminal; where a program or a file reads, they are whole lines with aligned columns.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from dask.utils import format_bytes
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dask_train.doctor.health_probe import TemplateProbe
from dask_train.report.formats import count_text, harmless, score_text, seconds_text
from dask_train.run.state import ALIVE

# What a score carries besides the values that were reported.
_RESERVED = ("role", "rank", "attempt", "time")

# A wider cell is broken in a terminal.
_MOST_KEPT_WHOLE = 40


def print_list(records: Sequence[dict[str, Any]], console: Console) -> None:
    """Print a table of runs, as :func:`dask_train.driver.records.all_runs` gives them."""
    columns = ("run", "started", "alive", "scores", "took", "state")
    print_table(columns, [_row(record) for record in records], wraps=5, console=console)


def _row(record: dict[str, Any]) -> tuple[str, ...]:
    summary = record["summary"]
    return (
        record["id"],
        _moment(record["started"], record["now"]),
        _alive(record),
        count_text(summary.get("num_scores", 0)),
        _took(record),
        _state(record),
    )


def _moment(started: float, now: float) -> str:
    """Return when, in local time; with the date where that was not within the last half day."""
    return time.strftime("%H:%M:%S" if now - started < 43_200 else "%d %b %H:%M", time.localtime(started))


def _alive(record: dict[str, Any]) -> str:
    roles = record["summary"].get("roles", ())
    # Where the number of workers has changed, those of the summary are not those that were asked for.
    total = len(roles) or sum(record["info"].get("roles", {}).values())
    alive = sum(role[2] in ALIVE for role in roles) if not record["ended"] else 0
    return f"{alive}/{total}"


def _took(record: dict[str, Any]) -> str:
    return seconds_text(max(0.0, (record["ended"] or record["now"]) - record["started"]))


def _state(record: dict[str, Any]) -> str:
    summary = record["summary"]
    if record["ended"]:
        return f"over: {summary.get('outcome') or 'it has not said why'}"
    return str(summary.get("phase", "starting")) + (f": {summary['waiting']}" if summary.get("waiting") else "")


def print_status(record: dict[str, Any], console: Console) -> None:
    """Print all that is known of a run, as :func:`dask_train.driver.records.find_run` gives it."""
    summary = record["summary"]
    requested_roles = ", ".join(f"{role}={count}" for role, count in record["info"].get("roles", {}).items())
    facts = [
        ("run", record["id"]),
        ("roles", f"{requested_roles} ({_alive(record)} alive)"),
        ("started", f"{_moment(record['started'], record['now'])}, {_took(record)}"),
        ("phase", str(summary.get("phase", "starting"))),
        ("waiting", summary.get("waiting", "")),
        *(("lost", loss) for loss in summary.get("losses", ())),
        ("scores", count_text(summary.get("num_scores", 0))),
        ("outcome", summary.get("outcome", "") if record["ended"] else ""),
    ]
    print_facts([(name, value) for name, value in facts if value], console=console)
    console.print()
    columns = ("role", "phase", "attempt", "process", "batches", "Dask worker", "doing")
    print_table(columns, [_role_row(role) for role in summary.get("roles", ())], wraps=6, console=console)
    if scores := summary.get("last_scores"):
        console.print()
        rows = [
            (f"{role} {rank}", _moment(score["time"], record["now"]), _values(score))
            for role, rank, score in sorted(scores, key=lambda entry: entry[:2])
        ]
        print_table(("role", "at", "last score"), rows, wraps=2, console=console)


def print_templates(templates: Mapping[str, Sequence[TemplateProbe]], console: Console) -> None:
    """Print the template processes of each Dask worker, if there are any."""
    rows = [_template_row(address, probe) for address, probes in sorted(templates.items()) for probe in probes]
    if rows:
        console.print()
        print_table(("template", "Dask worker", "process", "memory", "unused for"), rows, wraps=0, console=console)


def _template_row(address: str, probe: TemplateProbe) -> tuple[str, ...]:
    memory = "" if probe["memory"] is None else format_bytes(probe["memory"])
    there = address.removeprefix("tcp://")
    return probe["imports"], there, str(probe["pid"]), memory, seconds_text(probe["idle_s"])


def _role_row(role: list[Any]) -> tuple[str, ...]:
    name, rank, phase, attempt, address, pid, doing, batches = role
    there = address.removeprefix("tcp://")
    return f"{name} {rank}", phase, str(attempt), str(pid or ""), count_text(batches), there, doing


def _values(score: dict[str, Any]) -> str:
    shown = {name: value for name, value in score.items() if name not in _RESERVED}
    return ", ".join(f"{k} {score_text(v) if isinstance(v, float) else v}" for k, v in shown.items())


def check_role(record: dict[str, Any], role: str | None, rank: int | None) -> None:
    """Raise ``ValueError`` where a run has no such role; None stands for any."""
    counts = dict(record["info"].get("roles", {}))
    for name, one, *_ in record["summary"].get("roles", ()):  # also those that have joined
        counts[name] = max(counts.get(name, 0), one + 1)
    if any((role or name) == name and (rank or 0) < count for name, count in counts.items()):
        return
    missing_role = " ".join(str(part) for part in (role or "of rank", rank) if part is not None)
    have = ", ".join(f"{name}={count}" for name, count in counts.items())
    raise ValueError(f"Run {record['id']} has no role {missing_role}; it has {have}.")


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
