"""What a call of ``fit`` has left, as a page and as a figure."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dask_train.report import RoleTimeline, RunRecord, Score, Span, write_report

if TYPE_CHECKING:
    from dask_train.fit_result import FitResult


def write_page(result: FitResult, path: str | os.PathLike[str]) -> Path:
    """Write the page; see :func:`dask_train.report.write_report`."""
    return write_report(record_of(result), path)


def record_of(result: FitResult) -> RunRecord:
    """The scores of training by time, where each role was and when, and the last of each metric."""
    begun = min(attempt.started for attempt in result.attempts)
    ended = max((attempt.ended or attempt.started) for attempt in result.attempts)
    spans: dict[str, list[tuple[str, Span]]] = {}
    for attempt in result.attempts:
        stop = attempt.ended or ended
        for role, address in attempt.places.items():
            span = Span(name=f"attempt {attempt.number}", start_s=attempt.started - begun, end_s=stop - begun)
            spans.setdefault(role, []).append((address, span))
    roles = []
    for role, placed in sorted(spans.items()):
        name, _, rank = role.partition("/")
        address = placed[-1][0]
        roles.append(RoleTimeline(role=name, rank=int(rank), address=address, spans=tuple(span for _, span in placed)))
    last = [(name, f"{values[-1]:.6g}") for name, values in result.history.items() if values]
    return RunRecord(
        title=f"{result.model.name}, {len(result.epoch)} epochs",
        target_loss=None,
        scores=tuple(score for told in result.scores for score in _scores(told, begun)),
        phases=(Span(name="fit", start_s=0.0, end_s=ended - begun),),
        roles=tuple(roles),
        pictures={},
        summary=(
            *last,
            ("ended", result.stop_reason or "after all epochs"),
            ("rows trained", f"{result.ledger.trained:,}"),
            ("rows repeated", f"{result.ledger.repeated:,}"),
            ("rows dropped", f"{result.ledger.dropped:,}"),
            ("attempts", f"{len(result.attempts)}"),
        ),
        machine=f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
    )


def figure_of(result: FitResult) -> Any:
    """A ``matplotlib`` figure with a curve for each metric over epochs, that of validation beside that of training."""
    from matplotlib.figure import Figure

    names = [name for name in result.history if not name.startswith("val_")]
    figure = Figure(figsize=(4.5 * max(1, len(names)), 3.2), layout="constrained")
    epochs = [epoch + 1 for epoch in result.epoch]
    for place, name in enumerate(names, 1):
        axes = figure.add_subplot(1, len(names), place)
        for label, values in (("training", result.history[name]), ("validation", result.history.get(f"val_{name}"))):
            if values:
                axes.plot(epochs[-len(values) :], values, label=label)
        axes.set_xlabel("epoch")
        axes.set_title(name)
        axes.legend()
    return figure


def _scores(told: Mapping[str, Any], begun: float) -> Iterator[Score]:
    """Of what a worker or a scorer has told at once: one of training, one of validation."""
    for rows, prefix in (("training", ""), ("validation", "val_")):
        loss, accuracy = told.get(f"{prefix}loss"), told.get(f"{prefix}accuracy")
        if not isinstance(loss, int | float) or not math.isfinite(loss):
            continue
        if not isinstance(accuracy, int | float) or not 0 <= accuracy <= 1:
            accuracy = None
        yield Score(
            time_s=max(0.0, told["time"] - begun),
            loss=float(loss),
            accuracy=accuracy,
            step=told.get("steps"),
            rows_trained=None,
            rows=rows,
        )
