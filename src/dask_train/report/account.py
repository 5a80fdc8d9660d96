"""What a run has left, as a page and as a figure."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Container, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from dask_train.extras import check_installed, install_command
from dask_train.report.html import write_report
from dask_train.report.record import Metric, RoleTimeline, RunRecord, Score, Span
from dask_train.scores import CurveNames, values_of

# What the numbers of a run's own functions are counted by.
REPORT = "report"


class ReportedResult(Protocol):
    """What is read of a run's result, which :class:`dask_train.driver.result.RunAccount` describes."""

    @property
    def scores(self) -> Sequence[Mapping[str, Any]]:
        """Return all scores."""

    @property
    def ledger(self) -> Any:
        """Return the account of rows."""

    @property
    def attempts(self) -> Sequence[Any]:
        """Return every launch."""

    @property
    def stop_reason(self) -> str:
        """Return why the run was stopped."""


class MetricCurves(NamedTuple):
    """What training has come to: a list for each metric, of one value per epoch, and the numbers of those epochs.

    ``unit`` is what an epoch is called; ``sets`` names the rows whose metrics begin with a prefix. Names
    that begin with none are of training. ``apart`` has the epochs of metrics that have no value in some; None for
    values whose epoch is not known, which are not drawn.
    """

    values: Mapping[str, Sequence[Any]]
    epoch: Sequence[int]
    unit: str = "epoch"
    sets: Mapping[str, str] = MappingProxyType({"val_": "validation"})
    apart: Mapping[str, Sequence[int | None]] = MappingProxyType({})

    @classmethod
    def of_reports(cls, values: Mapping[str, Sequence[Any]]) -> MetricCurves:
        """Return those of numbers that functions have reported: a list for each name, in order."""
        return cls(values, range(max(map(len, values.values()), default=0)), REPORT)

    def lines(self) -> dict[str, dict[str, list[tuple[int, float]]]]:
        """Return numbers of epochs, from 1, and values: by metric, and by the rows that were looked at."""
        lines: dict[str, dict[str, list[tuple[int, float]]]] = {}
        for name, values in self.values.items():
            prefix = max((each for each in self.sets if name.startswith(each)), key=len, default="")
            # Of reports each name counts its own; a round that has no value of a metric is one of the first.
            rounds = range(len(values)) if self.unit == REPORT else self.epoch[-len(values) :]
            points = [
                (number + 1, float(value))
                for number, value in zip(self.apart.get(name, rounds), values, strict=False)
                if number is not None and isinstance(value, int | float)
            ]
            if points:
                lines.setdefault(name.removeprefix(prefix), {})[self.sets.get(prefix, "training")] = points
        return lines


def reported(scores: Sequence[Mapping[str, Any]]) -> dict[str, list[float]]:
    """Return the numbers that the first rank of each role has reported, in order, by name.

    Where several roles report the same name, that of the later ones begins with the role, as in ``"scorer/loss"``.
    """
    values: dict[str, list[float]] = {}
    names = CurveNames()
    for score in scores:
        for name, value in names.values(score).items():
            values.setdefault(name, []).append(value)
    return values


def epochs_apart(
    history: Mapping[str, Sequence[Any]], epochs: Sequence[int], scores: Sequence[Mapping[str, Any]]
) -> dict[str, list[int | None]]:
    """Return the epochs of metrics that not every epoch has, such as those of validation with ``validation_freq``.

    The reports of a run tell them. Of values from before it was resumed they tell none: these are of every n-th epoch,
    if that fits the reports and how many values there are, or it is not known.
    """
    reported: dict[str, set[int]] = {}
    for score in scores:
        if score.get("rank", 0) == 0 and "epoch" in score and "step" not in score:
            for name in values_of(score):
                reported.setdefault(name, set()).add(score["epoch"])
    return {
        name: _epochs_of(len(values), epochs, reported.get(name, set()))
        for name, values in history.items()
        if len(values) < len(epochs)
    }


def _epochs_of(count: int, epochs: Sequence[int], reported: Container[int]) -> list[int | None]:
    known = [epoch for epoch in epochs if epoch in reported][-count:]
    before = count - len(known)
    if before:
        each_nth = ([epoch for epoch in epochs if (epoch + 1) % every == 0] for every in range(2, len(epochs) + 1))
        fitting = {tuple(each) for each in each_nth if len(each) == count and each[before:] == known}
        if len(fitting) == 1:
            return list(*fitting)
    return [*[None] * before, *known]


def write_page(
    result: ReportedResult,
    model: str,
    history: MetricCurves,
    path: str | os.PathLike[str],
    storage_options: Mapping[str, Any] | None = None,
) -> Path | str:
    """Write the page of a model of that name; see :func:`dask_train.report.write_report`."""
    return write_report(record_of(result, model, history), path, storage_options)


def record_of(result: ReportedResult, model: str, history: MetricCurves) -> RunRecord:
    """Return the scores of training by time, where each role was and when, and the last of each metric."""
    begun = min((attempt.started for attempt in result.attempts), default=0.0)
    ended = max(((attempt.ended or attempt.started) for attempt in result.attempts), default=begun)
    is_train = history.unit == REPORT
    spans: dict[str, list[tuple[str, Span]]] = {}
    whole = result.attempts[0].places.keys() - result.attempts[0].joined.keys() if result.attempts else set()
    for number, attempt in enumerate(result.attempts):
        for role, address in attempt.places.items():
            start = attempt.joined.get(role, attempt.started)
            # An attempt that replaces some roles ends nothing of the others; one of all may leave out who had joined.
            replaced = (
                later.started
                for later in result.attempts[number + 1 :]
                if role in later.places or whole <= later.places.keys()
            )
            left = (each.left[role] for each in result.attempts[number:] if role in each.left)
            stop = max(start, min(next(replaced, ended), next(left, ended)))
            span = Span(name=f"attempt {attempt.number}", start_s=start - begun, end_s=stop - begun)
            spans.setdefault(role, []).append((address, span))
    roles = []
    for role, placed in sorted(spans.items()):
        name, _, rank = role.partition("/")
        address = placed[-1][0]
        roles.append(RoleTimeline(role=name, rank=int(rank), address=address, spans=tuple(span for _, span in placed)))
    names = CurveNames()
    scores = tuple(score for report in result.scores for score in _scores(report, names.values(report), begun))
    ends = {name: values[-1] for name, values in history.values.items() if values}
    last = [(name, f"{end:.6g}" if isinstance(end, int | float) else str(end)) for name, end in ends.items()]
    return RunRecord(
        title=f"{model}, {len(history.epoch)} {history.unit}s",
        target_loss=None,
        scores=scores,
        phases=(Span(name="train" if is_train else "fit", start_s=0.0, end_s=ended - begun),),
        roles=tuple(roles),
        pictures={},
        summary=(
            *last,
            ("ended", result.stop_reason or ("its roles returned" if is_train else f"after all {history.unit}s")),
            ("rows trained", f"{result.ledger.trained:,}"),
            ("rows repeated", f"{result.ledger.repeated:,}"),
            ("rows dropped", f"{result.ledger.dropped:,}"),
            ("attempts", f"{len(result.attempts)}"),
        ),
        metrics=tuple(_metrics(history, scores)),
        machine=f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
    )


def figure_of(history: MetricCurves) -> Any:
    """Draw a ``matplotlib`` figure: each metric over epochs, of training and validation."""
    check_installed("A figure", "matplotlib", install_command("plots"))
    from dask_train.report.shown_figure import ShownFigure

    charts = history.lines()
    figure = ShownFigure(figsize=(4.5 * max(1, len(charts)), 3.2), layout="constrained")
    for place, (name, lines) in enumerate(charts.items(), 1):
        axes = figure.add_subplot(1, len(charts), place)
        for label, points in lines.items():
            # An epoch without a value, such as one that a scorer did not validate, would interrupt the line.
            finite = [point for point in points if math.isfinite(point[1])]
            axes.plot(*zip(*(finite or points), strict=True), label=label)
        axes.set_xlabel(history.unit)
        axes.set_title(name)
        axes.legend()
    return figure


def _metrics(history: MetricCurves, scores: Sequence[Score]) -> Iterator[Metric]:
    """Yield what was finite of the metrics that are not among the scores."""
    drawn = {"loss"} if scores else set()
    if any(score.accuracy is not None for score in scores):
        drawn.add("accuracy")
    for name, lines in history.lines().items():
        finite = {rows: [point for point in line if math.isfinite(point[1])] for rows, line in lines.items()}
        if name not in drawn and any(finite.values()):
            yield Metric(name=name, unit=history.unit, lines={rows: line for rows, line in finite.items() if line})


def _scores(report: Mapping[str, Any], values: Mapping[str, float], begun: float) -> Iterator[Score]:
    """Give the scores that a worker or a scorer has reported at once: one of training, one of validation.

    ``values`` are its numbers by the names of their curves.
    """
    for rows, prefix in (("training", ""), ("validation", "val_")):
        loss, accuracy = values.get(f"{prefix}loss"), values.get(f"{prefix}accuracy")
        if loss is None or not math.isfinite(loss):
            continue
        steps = report.get("steps")
        yield Score(
            time_s=max(0.0, report["time"] - begun),
            loss=loss,
            accuracy=accuracy if accuracy is not None and 0 <= accuracy <= 1 else None,
            step=steps if isinstance(steps, int) and steps >= 0 else None,
            rows_trained=None,
            rows=rows,
        )
