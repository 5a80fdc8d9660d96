"""The page of a run: one HTML file that needs no network, no script and no other file.

Owns what the page says and how it gets to disk. The curves are drawn in ``curves``, the charts placed in ``timeline``
and dressed in ``page.html.jinja`` and ``page.css``.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from dask_train.extras import check_installed, install_command
from dask_train.masking import masked
from dask_train.report.curves import accuracy_curve, loss_curve, loss_is_log, metric_curve, metric_is_log
from dask_train.report.formats import count_text, score_text, seconds_text
from dask_train.report.pictures import picture_png, range_text
from dask_train.report.record import Metric, RunRecord, Score
from dask_train.report.timeline import NUM_COLOURS, TimeAxis, phase_rows, role_rows, span_colours
from dask_train.report.whole_file import write_whole
from dask_train.stores import checked_options, is_url, reaching

MAX_TABLE_ROWS = 200  # beyond this a table of scores is no longer read; the curves show them all


def write_report(
    record: RunRecord, path: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None
) -> Path | str:
    """Write the page of a run.

    Parameters
    ----------
    record
        What the run left behind. Every text of it is escaped.
    path
        The HTML file to make or replace, in one step: if anything fails, what was there before stays. A local file, or
        a URL.
    storage_options
        For the file system of a URL.

    Returns
    -------
    Path or str
        The file or URL, as it was named.

    Raises
    ------
    ImportError
        matplotlib, which draws the curves, is not installed.
    FileNotFoundError
        The file's folder doesn't exist.
    OSError
        The file can't be written.
    ValueError
        The store can't be written to.
    """
    options = checked_options(storage_options, path=path)
    check_installed("The page of a run", "matplotlib", install_command("plots"))
    page = page_of(record).encode()
    if not is_url(path):
        return write_whole(path, page)
    with reaching("path", path, options) as (system, place):
        system.pipe_file(place, page)
    return os.fspath(path)


def page_of(record: RunRecord) -> str:
    """Make the page of a run as one string of HTML."""
    environment = Environment(
        loader=PackageLoader("dask_train.report", package_path=""),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=lambda shown: masked(shown) if type(shown) is str else shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(seconds=seconds_text, count=count_text, score=score_text)
    scores = record.scores_in_order
    axis = TimeAxis(record.start_s, record.end_s)
    return environment.get_template("page.html.jinja").render(
        record=record,
        scores=scores,
        last=record.judged[-1] if scores else None,
        several=len({score.rows for score in scores}) > 1,
        table=_thinned(scores),
        verdict=verdict_of(record),
        curves=[*_curves(record, scores), *(_of_metric(metric, at) for at, metric in enumerate(record.metrics))],
        ticks=axis.ticks(),
        roles=role_rows(record.roles, axis),
        phases=phase_rows(record.phases, axis),
        legend=span_colours(record.roles),
        num_colours=NUM_COLOURS,
        pictures=[
            {"name": name, "range": range_text(picture), "png": base64.b64encode(picture_png(picture)).decode()}
            for name, picture in record.pictures.items()
        ],
    )


def verdict_of(record: RunRecord) -> tuple[str, str]:
    """Say in one sentence how the run went.

    Returns
    -------
    tuple[str, str]
        ``"good"``, ``"bad"`` or ``"plain"``, and the sentence.
    """
    if not record.scores:
        return "plain", _ended_with(record.metrics[0]) if record.metrics else "No scores yet"
    lowest = min(record.judged, key=lambda score: score.loss)
    if record.target_loss is None:
        return "plain", f"Lowest {_named(lowest)}loss {score_text(lowest.loss)} after {seconds_text(lowest.time_s)}"
    target = score_text(record.target_loss)
    reached = record.target_reached
    if reached is not None:
        return "good", f"Target loss {target} reached after {seconds_text(reached.time_s)}"
    return "bad", f"Target loss {target} not reached: the lowest was {score_text(lowest.loss)}"


def _ended_with(metric: Metric) -> str:
    """Return the last value of a metric; whether less or more of it is better is not known here."""
    number, value = metric.lines[metric.judged][-1]
    rows = metric.judged[:1].upper() + metric.judged[1:]
    return f"{rows} {metric.name} {score_text(value)} after {metric.unit} {number:g}"


def _named(score: Score) -> str:
    return f"{score.rows} " if score.rows else ""


def _curves(record: RunRecord, scores: Sequence[Score]) -> list[dict[str, str]]:
    """Title, drawing and the same in words of each curve; the drawing is empty if there is nothing to draw."""
    if not scores and record.metrics:
        return []
    if not scores:
        return [{"title": title, "svg": "", "words": "No scores yet"} for title in ("Loss", "Accuracy")]
    log = loss_is_log(scores, record.target_loss)
    loss = {
        "title": "Loss (logarithmic)" if log else "Loss",
        "svg": loss_curve(scores, record.target_loss, record.target_reached),
        "words": _in_words("Loss", [(score.time_s, score_text(score.loss)) for score in scores])
        + ("" if record.target_loss is None else f" The target is {score_text(record.target_loss)}."),
    }
    if record.metrics and all(score.accuracy is None for score in scores):
        return [loss]
    known = [(score.time_s, f"{score.accuracy:.2%}") for score in scores if score.accuracy is not None]
    accuracy = {
        "title": "Accuracy",
        "svg": accuracy_curve(scores) if known else "",
        "words": _in_words("Accuracy", known) if known else "No accuracy was reported",
    }
    return [loss, accuracy]


def _of_metric(metric: Metric, number: int) -> dict[str, str]:
    """Return the same of a metric over epochs or rounds."""
    words = [
        f"{rows} from {score_text(points[0][1])} in {metric.unit} {points[0][0]:g} "
        f"to {score_text(points[-1][1])} in {metric.unit} {points[-1][0]:g}"
        for rows, points in metric.lines.items()
    ]
    return {
        "title": f"{metric.name} (logarithmic)" if metric_is_log(metric) else metric.name,
        "svg": metric_curve(metric, number),
        "words": f"{metric.name} over {metric.unit}s: {'; '.join(words)}.",
    }


def _in_words(what: str, points: Sequence[tuple[float, str]]) -> str:
    (first_s, first), (last_s, last) = points[0], points[-1]
    if len(points) == 1:
        return f"{what} over seconds: one score, {first} at {seconds_text(first_s)}."
    return (
        f"{what} over seconds: {len(points)} scores, "
        f"from {first} at {seconds_text(first_s)} to {last} at {seconds_text(last_s)}."
    )


def _thinned(scores: Sequence[Score]) -> Sequence[Score]:
    """Every n-th score and the last, so that no more than ``MAX_TABLE_ROWS`` rows (and one) are left."""
    every = -(-len(scores) // MAX_TABLE_ROWS)
    if every <= 1:
        return scores
    thinned = list(scores[::every])
    return thinned if thinned[-1] is scores[-1] else [*thinned, scores[-1]]
