"""``--json``: what a command has read, and what the scheduler has on record of runs, for programs."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import click

from dask_train.doctor.health_probe import TemplateProbe
from dask_train.run.state import ALIVE

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")

_ROLE = ("role", "rank", "phase", "attempt", "worker", "pid", "doing", "num_batches")


def print_json(value: Any) -> None:
    """Print a value as one line of JSON; numbers that JSON lacks, such as NaN, are null."""
    click.echo(json.dumps(_plain(value), allow_nan=False))


def _plain(value: Any) -> Any:
    """Return a value that JSON has; of other objects their text."""
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, str | int) else str(value)


def run_value(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a run as ``dask train list --json`` has it.

    Parameters
    ----------
    record
        As :func:`dask_train.driver.records.all_runs` gives it.

    Returns
    -------
    dict
        Times in seconds since the epoch, by the scheduler's clock; ``ended`` is None while the run continues.
    """
    summary, is_over = record["summary"], bool(record["ended"])
    return {
        "run": record["id"],
        "roles": dict(record["info"].get("roles", {})),
        "num_alive": 0 if is_over else sum(role[2] in ALIVE for role in summary.get("roles", ())),
        "started": record["started"],
        "ended": record["ended"] or None,
        "seconds": max(0.0, (record["ended"] or record["now"]) - record["started"]),
        "phase": "over" if is_over else str(summary.get("phase", "starting")),
        "waiting": summary.get("waiting", ""),
        "num_scores": summary.get("num_scores", 0),
        "outcome": summary.get("outcome", "") if is_over else "",
    }


def status_value(record: Mapping[str, Any], templates: Mapping[str, Sequence[TemplateProbe]]) -> dict[str, Any]:
    """Return a run as ``dask train status --json`` has it, with its roles, losses and last scores.

    Parameters
    ----------
    record
        As :func:`dask_train.driver.records.find_run` gives it.
    templates
        The template processes of each Dask worker.
    """
    summary = record["summary"]
    return {
        **run_value(record),
        "losses": list(summary.get("losses", ())),
        "each_role": [dict(zip(_ROLE, role, strict=True)) for role in summary.get("roles", ())],
        "last_scores": [score for _, _, score in summary.get("last_scores", ())],
        "templates": [{"worker": address, **probe} for address, probes in templates.items() for probe in probes],
    }
