"""``dask train doctor``: what a cluster can run, and what to change."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click
from dask.utils import format_bytes
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from dask_train.cli.connection import connect, connection_options, scheduler_address
from dask_train.cli.json_output import json_option, print_json
from dask_train.errors import DaskTrainError

if TYPE_CHECKING:
    from dask_train.doctor.diagnosis import Finding
    from dask_train.doctor.examined import Examination
    from dask_train.doctor.health_probe import HealthProbe

_STYLES = {"bad": "bold red", "warn": "yellow", "ok": "green"}

# Of more Dask workers than this, the findings tell those that matter.
_MOST_ROWS = 16


@click.command()
@connection_options
@click.option("--html", "page", metavar="FILE", help="Write the same as a web page, too.")
@json_option
def doctor(as_json: bool, page: str | None, **options: Any) -> None:
    """Report what a cluster can run, and what to change; without a scheduler, what this machine can.

    \b
    Exit status
      0    nothing is bad
      1    something is bad, or the cluster does not answer
      2    the command line can't be understood
      130  Ctrl-C
    """
    from dask_train.doctor.diagnosis import diagnose
    from dask_train.doctor.examination import examine, examine_here

    if scheduler_address(options["scheduler"]) is None:
        message = "No scheduler is given (--scheduler ADDRESS), so this is about this machine alone."
        click.echo(message, err=as_json)
        examination = examine_here()
    else:
        try:
            with connect(**options) as client:
                examination = examine(client)
        except DaskTrainError as error:
            raise click.ClickException(str(error)) from error
    findings = diagnose(examination)
    if page is not None:
        _write_page(page, examination, findings)
    if as_json:
        print_json({"scheduler": examination.address, "findings": [asdict(finding) for finding in findings]})
    else:
        _print(examination, findings)
    sys.exit(1 if any(finding.level == "bad" for finding in findings) else 0)


def _print(examination: Examination, findings: list[Finding]) -> None:
    console = Console(highlight=False)
    if console.is_terminal:
        console.print(_processes(examination))
        console.print(_table(findings))
    else:
        _print_plainly(examination, findings)
    counts = {level: sum(finding.level == level for finding in findings) for level in _STYLES}
    click.echo(", ".join(f"{count} {level}" for level, count in counts.items()) + ".")


def _write_page(path: str, examination: Examination, findings: list[Finding]) -> None:
    from dask_train.doctor.page import write_page

    title = f"The condition of {examination.address or 'this machine'}"
    try:
        write_page(title, findings, _COLUMNS, _rows(examination), path)
    except OSError as error:
        raise click.ClickException(f"{path} can't be written: {error}") from error


def _table(findings: list[Finding]) -> Table:
    table = Table("", "what", "what to change", box=None, header_style="dim", pad_edge=False)
    for finding in findings:
        table.add_row(Text(finding.level, _STYLES[finding.level]), Text(finding.what), Text(finding.change))
    return table


def _processes(examination: Examination) -> Table:
    address = Column(_COLUMNS[0], no_wrap=True)  # one that is cut can't be copied
    table = Table(address, *_COLUMNS[1:], box=None, header_style="dim", pad_edge=False)
    for row in _rows(examination):
        table.add_row(*map(Text, row))
    table.add_row()
    return table


def _print_plainly(examination: Examination, findings: list[Finding]) -> None:
    """Print a line each, whole, so that a log can be searched."""
    for row in _rows(examination):
        cells = (f"{name} {cell}".strip() for name, cell in zip(_COLUMNS, row, strict=True) if cell)
        click.echo("; ".join(cells).replace("\n", ", "))
    for finding in findings:
        click.echo(f"{finding.level:<4}  {finding.what} {finding.change}".rstrip())


_COLUMNS = ("", "host", "threads", "memory", "installed", "GPUs")


def _rows(examination: Examination) -> list[tuple[str, ...]]:
    here = _row(examination.here)
    rows: list[tuple[str, ...]] = [("here", *here)]
    for address, probe in list(examination.workers.items())[:_MOST_ROWS]:
        host, threads, memory, installed, gpus = _row(probe)
        rows.append((address, host, threads, memory, "as here" if installed == here[3] else installed, gpus))
    if (left := len(examination.workers) - _MOST_ROWS) > 0:
        rows.append((f"and {left} more", "", "", "", "", ""))
    return rows


def _row(probe: HealthProbe) -> tuple[str, str, str, str, str]:
    from dask_train.doctor.diagnosis import FRAMEWORKS

    used, limit = format_bytes(probe["memory_used"] or 0), probe["memory_limit"]
    memory = f"{used} of {format_bytes(limit)}" if limit else used
    shown = ("python", "dask_train", *FRAMEWORKS)
    installed = "\n".join(f"{name} {probe['versions'][name]}" for name in shown if name in probe["versions"])
    return probe["host"], str(probe["threads"]), memory, installed, "\n".join(probe["gpus"]) or "none"
