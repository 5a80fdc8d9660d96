"""Runs side by side: the lines of one chart, and a table of results and of settings that differ. No bokeh here."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from dask.utils import format_bytes

from .tables import (
    COLOURS,
    chart_names,
    columns_of,
    duration,
    host_of,
    phase_of,
    rate_text,
    roles_by_host,
    running_roles,
    value_text,
)
from .traces import Curve, CurveKey, Trace

LINE_COLUMNS = ("xs", "ys", "x", "y", "colour", "dash", "label", "run")
# As many colours as people tell apart.
COMPARED_COLOURS = (*COLOURS, "#8c6d31")
MOST_COMPARED = len(COMPARED_COLOURS)
# In names of scores of which more is better: as ``dask_train.run.stopping.Patience`` has them.
_GROWING = ("acc", "auc", "precision", "recall", "f1")
# In names of scores of which less is better.
_SHRINKING = ("loss", "error", "mse", "mae", "rmse", "mape", "deviance", "perplexity")
# Roles that train no rows.
_NO_TRAINERS = frozenset({"ps", "scorer"})
# Up to how many seconds an axis of time counts seconds, and minutes.
_MOST_SECONDS, _MOST_MINUTES = 300.0, 18_000.0


@dataclass(frozen=True)
class Compared:
    """One of the runs.

    Attributes
    ----------
    run
        As the scheduler knows it.
    trace
        What was heard of it.
    colour
        Of its lines, and in the table's head.
    """

    run: Any
    trace: Trace
    colour: str

    @property
    def began(self) -> float:
        """Return when its roles began, in seconds since the epoch; before that, when the run was asked for."""
        return self.trace.running_since or float(self.run.started)


def compared_runs(runs: Sequence[Any], traces: Mapping[str, Trace], chosen: Sequence[str]) -> list[Compared]:
    """Return the runs with these names that there still are, in the order in which they were chosen."""
    by_id = {run.id: run for run in runs}
    there = [by_id[name] for name in chosen if name in by_id]
    return [
        Compared(run, traces.get(run.id, Trace()), colour) for run, colour in zip(there, COMPARED_COLOURS, strict=False)
    ]


def with_logged(
    runs: Sequence[Any], traces: Mapping[str, Trace], logged: Sequence[Any]
) -> tuple[list[Any], dict[str, Trace]]:
    """Return all runs and their traces, with those of logs that the scheduler does not know any more at the end."""
    known = {run.id for run in runs}
    others = [run for run in logged if run.id not in known]
    return [*runs, *others], {**traces, **{run.id: run.trace for run in others}}


def names_of_scores(runs: Sequence[Compared]) -> list[str]:
    """Return the charts that any of them has; those that more of them have come first."""
    names = [name for each in runs for name in chart_names(each.trace)]
    return sorted(dict.fromkeys(names), key=lambda name: -names.count(name))


def compared_lines(runs: Sequence[Compared], name: str, *, over_time: bool) -> tuple[dict[str, list[Any]], str]:
    """Return the lines of one score as columns, those of its validation dashed, and what their axis counts."""
    # There is one line for each run, that of its first role. Where a run was restarted, the line continues with the
    # last attempt from where that began.
    lines = [
        (each, label, *_stitched(each, label, over_time=over_time)) for each in runs for label in (name, f"val_{name}")
    ]
    lines = [line for line in lines if line[2]]
    scale, axis = 1.0, " or ".join(sorted({along or "report" for *_, along in lines}))
    if over_time:
        scale, axis = _unit(max((x for _, _, xs, _, _ in lines for x in xs), default=0.0))
        axis = f"{axis} since the roles began"
    rows = []
    for each, label, xs, ys, _ in lines:
        scaled = [x / scale for x in xs]
        dash = "solid" if label == name else "dashed"
        rows.append((scaled, ys, scaled[-1], ys[-1], each.colour, dash, f"{each.run.id}: {label}", each.run.id))
    return columns_of(LINE_COLUMNS, rows), axis


def _unit(most_s: float) -> tuple[float, str]:
    if most_s <= _MOST_SECONDS:
        return 1.0, "seconds"
    return (60.0, "minutes") if most_s <= _MOST_MINUTES else (3600.0, "hours")


def _stitched(run: Compared, name: str, *, over_time: bool) -> tuple[list[float], list[float], str]:
    """Return the points of a score of a run through all attempts, and what its x counts."""
    points: list[tuple[float, float, float]] = []
    along = ""
    for curve in _curves(run.trace, name):
        along = curve.along
        first = curve.x[0] if curve.x else math.inf
        points = [point for point in points if point[0] < first]
        points += zip(curve.x, curve.y, (max(0.0, at - run.began) for at in curve.times), strict=True)
    return [time if over_time else x for x, _, time in points], [y for _, y, _ in points], along


def _curves(trace: Trace, name: str) -> list[Curve]:
    """Return the curves of the first role that has reported a score, one for each attempt."""
    keys = [key for key in trace.curves if key.name == name]
    if not keys:
        return []
    first = min(keys, key=lambda key: key.rank)

    def is_of_first(key: CurveKey) -> bool:
        return (key.role, key.rank, key.trial) == (first.role, first.rank, first.trial)

    return [trace.curves[key] for key in sorted(filter(is_of_first, keys), key=lambda key: key.attempt)]


def results(runs: Sequence[Compared], now: float) -> list[tuple[str, list[str]]]:
    """Return how the runs went: a name, and a value for each run."""
    rows = [
        ("state", [phase_of(each.run) for each in runs]),
        ("duration", [duration((each.run.ended or now) - each.run.started) for each in runs]),
        ("roles", [roles_by_host(each.run) for each in runs]),
        ("restarts", [str(each.trace.num_restarts) for each in runs]),
        ("rows trained", [f"{rows:,}" if (rows := num_rows(each)) else "" for each in runs]),
        ("rows/s, mean", [_rows_per_s(each, now) for each in runs]),
        ("memory per host, most", [_memory(each) for each in runs]),
    ]
    for chart in names_of_scores(runs):
        for name in (chart, f"val_{chart}"):
            values = [_last_and_best(each, name) for each in runs]
            if any(last for last, _ in values):
                rows.append((f"{name}, last", [last for last, _ in values]))
                rows.append((f"{name}, {_which(name)}", [best for _, best in values]))
    return [(name, values) for name, values in rows if any(values)]


def num_rows(run: Compared) -> int:
    """Return how many rows a run has trained; of one that is not over, those of the attempts that train now."""
    ledger = run.run.summary.get("rows", {})
    reported_rows = sum(use.rows for (role, _), use in run.trace.usage.items() if role not in _NO_TRAINERS)
    return int(ledger.get("trained", 0)) or reported_rows


def _rows_per_s(run: Compared, now: float) -> str:
    seconds = (run.run.ended or now) - run.began
    trains = run.run.ended or running_roles(run.run)
    return rate_text(num_rows(run) / seconds) if trains and seconds > 0 else ""


def _memory(run: Compared) -> str:
    """Return the most memory of the processes on the host where they take most, without the shared memory they map."""
    hosts: dict[str, int] = {}
    for role, rank, _, _, address, *_ in run.run.summary.get("roles", ()):
        use = run.trace.usage.get((role, rank))
        if use is not None:
            hosts[host_of(address)] = hosts.get(host_of(address), 0) + use.most_memory_bytes
    most = max(hosts.values(), default=0)
    return format_bytes(most) if most else ""


def _which(name: str) -> str:
    if any(word in name for word in _GROWING):
        return "highest"
    return "lowest" if any(word in name for word in _SHRINKING) else "lowest and highest"


def _last_and_best(run: Compared, name: str) -> tuple[str, str]:
    curves = [curve for curve in _curves(run.trace, name) if curve.y]
    if not curves:
        return "", ""
    least = [curve.least for curve in curves if curve.least is not None]
    most = [curve.most for curve in curves if curve.most is not None]
    if not least:
        return value_text(curves[-1].y[-1]), ""
    along = curves[-1].along or "report"
    low, high = (f"{value_text(y)} at {along} {x:.4g}" for y, x in (min(least), max(most)))
    best = {"highest": high, "lowest": low}.get(_which(name), f"{low}, {high}")
    return value_text(curves[-1].y[-1]), best


def differing_settings(runs: Sequence[Compared]) -> list[tuple[str, list[str]]]:
    """Return the settings in which the runs differ: a name, and a value for each run, empty if it has none."""
    run_settings = [run.run.info.get("settings", {}) for run in runs]
    names = dict.fromkeys(name for settings in run_settings for name in settings)
    rows = [(str(name), [str(settings.get(name, "")) for settings in run_settings]) for name in names]
    return [(name, values) for name, values in rows if len(set(values)) > 1]


def table_html(runs: Sequence[Compared], now: float) -> str:
    """Return one table of results and of settings that differ, with a column for each run."""
    head = "".join(
        f"<th style='{_CELL}border-bottom: 3px solid {each.colour}'>{escape(each.run.id)}</th>" for each in runs
    )
    differing = differing_settings(runs)
    words = "Settings that differ" if differing else "The runs have the same settings."
    section = f"<tr><th colspan='{len(runs) + 1}' style='{_CELL}padding-top: 10px'>{words}</th></tr>"
    body = "".join(map(_row, results(runs, now))) + section + "".join(map(_row, differing))
    return f"<table style='border-collapse: collapse'><tr><th style='{_CELL}'></th>{head}</tr>{body}</table>"


_CELL = "text-align: left; vertical-align: top; padding: 3px 14px 3px 0; "


def _row(row: tuple[str, list[str]]) -> str:
    name, values = row
    cells = "".join(f"<td style='{_CELL}'>{escape(value)}</td>" for value in values)
    return f"<tr style='border-top: 1px solid #8884'><td style='{_CELL}'>{escape(name)}</td>{cells}</tr>"
