"""What the page shows, as columns of tables and lines of charts: pure functions of what the scheduler knows of runs."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dask.utils import format_bytes

from .traces import CurveKey, Trace

RUN_COLUMNS = ("run", "phase", "started", "time", "roles", "scores", "batches/s", "restarts")
ROLE_COLUMNS = (
    *("role", "phase", "doing", "batches", "batches/s", "rows", "rows/s", "memory", "CPU"),
    *("attempt", "host", "address", "pid"),
)
CHART_COLUMNS = ("xs", "ys", "x", "y", "colour", "alpha", "dash", "label")
WAITING_COLUMNS = ("run", "time", "roles", "why")
# Of more hosts, or scores, a cell names the first ones.
MOST_NAMED = 6
# Colours that people who see no red, or no green, distinguish (Okabe and Ito, 2008); their black, which a dark page
# would hide, is grey.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#777777")


def runs_table(runs: Sequence[Any], traces: Mapping[str, Trace], now: float) -> dict[str, list[Any]]:
    """Return the runs, the newest first."""
    rows = []
    for run in runs:
        trace = traces.get(run.id, Trace())
        rows.append(
            (
                run.id,
                phase_of(run),
                time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(run.started)),
                duration((run.ended or now) - run.started),
                roles_by_host(run),
                last_scores(run),
                "" if run.ended or not any(trace.num_batches.values()) else f"{trace.rate(now):.3g}",
                trace.num_restarts,
            )
        )
    return columns_of(RUN_COLUMNS, rows)


def default_run(runs: Sequence[Any], traces: Mapping[str, Trace]) -> Any | None:
    """Return the run that is shown if none was chosen: a live one that has reported, if there is one.

    Of several it is the newest, the first of ``runs``.
    """

    def reports(run: Any) -> bool:
        return run.id in traces and bool(traces[run.id].curves)

    return min(runs, key=lambda run: (bool(run.ended), not run.ended and not reports(run)), default=None)


def roles_table(run: Any | None, usage: Mapping[tuple[str, int], Any], now: float) -> dict[str, list[Any]]:
    """Return the roles of a run, as its driver said last, and what they have reported.

    Parameters
    ----------
    usage
        By role and rank, as :class:`~.times.Usage`.
    """
    rows = []
    roles, is_over = ((), True) if run is None else (run.summary.get("roles", ()), bool(run.ended))
    for role, rank, phase, attempt, address, pid, doing, batches in roles:
        use = usage.get((role, rank))
        done = f"{use.rows:,}" if use is not None and use.rows else ""
        steps_s, rows_s, memory, cpu = ("",) * 4 if use is None or is_over or not pid else _use_now(use, now)
        place = (attempt, host_of(address), address, str(pid or ""))
        rows.append((f"{role} {rank}", phase, doing, batches, steps_s, done, rows_s, memory, cpu, *place))
    return columns_of(ROLE_COLUMNS, rows)


def _use_now(use: Any, now: float) -> tuple[str, str, str, str]:
    """Batches and rows a second, memory, and processors, of which 100% is one; empty if nothing was reported lately."""
    batches, rows, cpu_s = use.rates(now)
    cpu = f"{cpu_s:.0%}" if cpu_s else ""
    return rate_text(batches), rate_text(rows), format_bytes(use.memory_bytes), cpu


def running_roles(run: Any) -> set[tuple[str, int]]:
    """Return the roles of a run that are in the user's function now."""
    roles = () if run.ended else run.summary.get("roles", ())
    return {(role, rank) for role, rank, phase, *_ in roles if phase == "running"}


def waiting_table(requests: Iterable[Any], why: Any, now: float) -> dict[str, list[Any]]:
    """Return who waits for room, in order, and for what.

    Parameters
    ----------
    requests
        As ``PlacementQueue.waiting``.
    why
        A function that says for what one of them waits.
    """
    rows = []
    for request in requests:
        roles = Counter(role for (role, _), _ in request.roles)
        rows.append((request.run.id, duration(now - request.asked), counts_text(roles), why(request)))
    return columns_of(WAITING_COLUMNS, rows)


def chart_names(trace: Trace) -> list[str]:
    """Return the charts of a run: one a score, where the score of validation (``val_...``) stands with its own."""
    return list(dict.fromkeys(key.name.removeprefix("val_") for key in trace.curves))


def chart(trace: Trace, name: str) -> dict[str, list[Any]]:
    """Return the lines of one chart as columns; those of earlier attempts are pale, of validation dashed."""
    newest: dict[tuple[str, int], int] = {}
    for key in trace.curves:
        newest[key.role, key.rank] = max(key.attempt, newest.get((key.role, key.rank), 0))
    whose: dict[Any, int] = {}
    lines: list[tuple[Any, ...]] = []
    for key, curve in trace.curves.items():
        if key.name.removeprefix("val_") == name:
            number = whose.setdefault((key.role, key.rank, key.trial), len(whose))
            is_validation = key.name != name
            alpha = 0.9 if key.attempt == newest[key.role, key.rank] else 0.25
            colour = COLOURS[number % len(COLOURS)]
            lines.append((curve.x, curve.y, colour, alpha, "dashed" if is_validation else "solid", curve_label(key)))
    return columns_of(CHART_COLUMNS, [(list(x), list(y), x[-1], y[-1], *rest) for x, y, *rest in lines])


def curve_label(key: CurveKey) -> str:
    """Whose line it is, for people."""
    trial = "" if key.trial is None else f", trial {key.trial}"
    attempt = f", attempt {key.attempt}" if key.attempt else ""
    return f"{key.name}, {key.role} {key.rank}{trial}{attempt}"


def along(trace: Trace, name: str) -> str:
    """Return what the charts' axis counts."""
    axes = {curve.along or "report" for key, curve in trace.curves.items() if key.name.removeprefix("val_") == name}
    return " or ".join(sorted(axes))


def phase_of(run: Any) -> str:
    """Return where a run is; of one that is over, how it ended."""
    if run.ended:
        return str(run.summary.get("outcome") or "over")
    return str(run.summary.get("phase", "starting"))


def words_on(run: Any, why: str) -> str:
    """Return what is too long for a cell: for what a run waits, or how it ended and what was lost before."""
    sentences = [f"Waits for room: {why}"] if why else []
    sentences += [f"Attempt {number}: {cause}" for number, cause in enumerate(run.summary.get("losses", ()))]
    return " ".join([*sentences, f"It is over: {phase_of(run)}"] if run.ended else sentences)


def roles_by_host(run: Any) -> str:
    """Return how many roles of each name are on each host."""
    hosts: dict[str, Counter[str]] = {}
    for role, _, _, _, address, *_ in run.summary.get("roles", ()):
        hosts.setdefault(host_of(address) or "no room yet", Counter())[role] += 1
    if not hosts:
        return counts_text(Counter(run.info.get("roles", {})))
    parts = [f"{host}: {counts_text(counts)}" for host, counts in list(hosts.items())[:MOST_NAMED]]
    return "; ".join(parts) + (f"; {len(hosts) - MOST_NAMED} more hosts" if len(hosts) > MOST_NAMED else "")


def last_scores(run: Any) -> str:
    """Return what a run reported last: of the first role that has reported, which is named where there are several."""
    scores = run.summary.get("last_scores", ())
    if not scores:
        return ""
    role, rank, score = min(scores, key=lambda of: of[1])
    named = [f"{name} {value_text(value)}" for name, value in score.items() if name not in _OF_WHOM]
    more = f" ({role} {rank})" if len(scores) > 1 else ""
    return ", ".join(named[:MOST_NAMED]) + more


_OF_WHOM = ("role", "rank", "attempt", "time")


def value_text(value: Any) -> str:
    """Return a score as text."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def rate_text(rate: float) -> str:
    """Return how much a second; empty if it is nothing."""
    return f"{rate:,.0f}" if rate >= 1000 else f"{rate:.3g}" if rate else ""


def counts_text(counts: Mapping[str, int]) -> str:
    """Return how many of each."""
    return ", ".join(f"{count} {name}" for name, count in counts.items())


def host_of(address: str) -> str:
    """Return the host of a Dask worker's address, such as ``tls://10.0.0.1:8786``."""
    return address.partition("://")[2].rpartition(":")[0].strip("[]")


def duration(seconds: float) -> str:
    """Seconds as people read them: 12 s, 3:05 min, 2:00:09 h."""
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02} min"
    return f"{whole // 3600}:{whole % 3600 // 60:02}:{whole % 60:02} h"


def columns_of(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> dict[str, list[Any]]:
    """Return rows as the columns of bokeh's data sources."""
    return {name: [row[number] for row in rows] for number, name in enumerate(names)}
