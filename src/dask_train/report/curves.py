"""The curves of a run's scores over seconds, and of its other metrics over epochs or rounds.

Owns how they are drawn: their axes, the target and where it was reached. Takes scores as they are and computes none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from dask_train.report.drawing import CURVE, INK, LINE, OTHER_CURVE, TARGET, new_figure, svg_of
from dask_train.report.formats import score_text, seconds_text
from dask_train.report.record import Metric, Score

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# A page shows a curve 350 to 600 pixels wide; at this size its letters stay between 9 and 16 pixels high.
WIDTH_IN, HEIGHT_IN = 4.6, 2.6
FONT_SIZE = 9
MAX_MARKED = 80  # more points than this hide the line that joins them
STYLES = ("-", "--", ":", "-.")  # of the lines after the first, which have one colour
LOG_FROM_RATIO = 10  # a loss that fell to a tenth is flat on a linear axis just where it gets interesting


def loss_is_log(scores: Sequence[Score], target_loss: float | None) -> bool:
    """Return whether the loss gets a logarithmic axis."""
    return _is_log(_with_target(scores, target_loss))


def metric_is_log(metric: Metric) -> bool:
    """Return whether a metric gets a logarithmic axis."""
    return _is_log(_values(metric.lines))


def _is_log(values: Sequence[float]) -> bool:
    """Return whether all is positive and spans a decade or more."""
    return min(values) > 0 and max(values) / min(values) >= LOG_FROM_RATIO


def loss_curve(scores: Sequence[Score], target_loss: float | None, reached: Score | None) -> str:
    """Draw the loss over seconds, with the target and where it was first reached.

    Parameters
    ----------
    scores
        By time, at least one.
    target_loss
        Drawn as a dashed line; None draws none.
    reached
        The score that is marked; None marks none.

    Returns
    -------
    str
        An ``<svg>`` element.
    """
    figure, axes = _curve_axes(_lines(scores, lambda score: score.loss), score_text)
    if loss_is_log(scores, target_loss):
        _use_log_axis(axes, _with_target(scores, target_loss))
    else:
        axes.set_ylim(*_linear_limits(_with_target(scores, target_loss)))
    if target_loss is not None:
        _draw_target(axes, target_loss, reached)
    return svg_of(figure, "loss")


def accuracy_curve(scores: Sequence[Score]) -> str:
    """Draw the accuracy over seconds, in percent.

    Parameters
    ----------
    scores
        By time; those without an accuracy are left out, and at least one must have one.

    Returns
    -------
    str
        An ``<svg>`` element.
    """
    known = [score for score in scores if score.accuracy is not None]
    values = [100 * (score.accuracy or 0.0) for score in known]
    lines = _lines(known, lambda score: 100 * (score.accuracy or 0.0))
    figure, axes = _curve_axes(lines, lambda percent: f"{percent:.4g}%")
    low = min(values) if len(values) > 1 else 0.0
    margin = max(0.04 * (100 - low), 0.05)
    axes.set_ylim(max(low - margin, -margin), 100 + margin)
    return svg_of(figure, "accuracy")


def metric_curve(metric: Metric, number: int) -> str:
    """Draw a metric over epochs or rounds.

    Parameters
    ----------
    metric
        Whatever it is.
    number
        Of the metric on its page.

    Returns
    -------
    str
        An ``<svg>`` element.
    """
    from matplotlib.ticker import MaxNLocator

    figure, axes = _curve_axes(metric.lines, score_text, lambda value: f"{value:,g}")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel(metric.unit, color=INK, fontsize=FONT_SIZE)
    values = _values(metric.lines)
    if metric_is_log(metric):
        _use_log_axis(axes, values)
    else:
        axes.set_ylim(*_linear_limits(values))
    return svg_of(figure, f"metric-{number}")


def _values(lines: Mapping[str, Sequence[tuple[float, float]]]) -> list[float]:
    return [value for points in lines.values() for _, value in points]


def _lines(scores: Sequence[Score], value: Callable[[Score], float]) -> dict[str, list[tuple[float, float]]]:
    """Points by the rows that were looked at."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for score in scores:
        lines.setdefault(score.rows, []).append((score.time_s, value(score)))
    return lines


def _curve_axes(
    lines: Mapping[str, Sequence[tuple[float, float]]],
    value_text: Callable[[float], str],
    place_text: Callable[[float], str] = lambda seconds: f"{seconds:,g} s",
) -> tuple[Figure, Axes]:
    places = [place for points in lines.values() for place, _ in points]
    figure = new_figure(WIDTH_IN, HEIGHT_IN)
    axes = figure.add_subplot()
    axes.set_facecolor("none")
    axes.grid(visible=True, axis="y", color=LINE, linewidth=0.8, linestyle="-", alpha=1.0)
    axes.set_axisbelow(True)
    for side in ("left", "right", "top"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set(color=LINE, linewidth=0.8)
    axes.tick_params(which="both", length=0, colors=INK, labelsize=FONT_SIZE, pad=6)
    axes.xaxis.set_major_formatter(lambda value, _: place_text(value))
    axes.yaxis.set_major_formatter(lambda value, _: value_text(value))
    in_order = sorted(lines.items(), key=lambda line: (line[0] != "training", line[0]))
    for number, (name, points) in enumerate(in_order):
        marker = "o" if len(points) <= MAX_MARKED else ""
        size = 3 if len(points) > 1 else 7  # a lone point is all there is to see
        colour = OTHER_CURVE if number else CURVE
        style = STYLES[max(0, number - 1) % len(STYLES)]
        x, y = zip(*points, strict=True)
        axes.plot(x, y, color=colour, lw=2, ls=style, marker=marker, ms=size, zorder=3, label=name)
    if len(lines) > 1:
        axes.legend(frameon=False, fontsize=FONT_SIZE, labelcolor=INK)
    axes.set_xlim(*_place_limits(places))
    return figure, axes


def _place_limits(places: Sequence[float]) -> tuple[float, float]:
    """Begin at the start of the run, unless the scores came so late that they would crowd at the right."""
    first, last = min(places), max(places)
    if first <= 0.5 * last or first == last:
        first = min(first, 0.0)
    margin = 0.03 * (last - first) or 1.0
    return first - (margin if first else 0.0), last + margin


def _linear_limits(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    if low > 0 and (low < 0.5 * high or len(values) == 1):
        low = 0.0
    margin = 0.08 * (high - low) or 1.0
    return (low - margin if low else 0.0), high + margin


def _use_log_axis(axes: Axes, values: Sequence[float]) -> None:
    from matplotlib.ticker import LogLocator, NullLocator

    formatter = axes.yaxis.get_major_formatter()
    axes.set_yscale("log")
    few_decades = max(values) / min(values) < 1e3
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if few_decades else (1.0,)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(formatter)
    axes.set_ylim(min(values) / 1.6, max(values) * 1.25)


def _draw_target(axes: Axes, target_loss: float, reached: Score | None) -> None:
    axes.axhline(target_loss, color=TARGET, linewidth=1.5, linestyle=(0, (5, 3)), zorder=2)
    axes.annotate(
        f"target {score_text(target_loss)}",
        (0.01, target_loss),
        xycoords=("axes fraction", "data"),
        xytext=(0, 4),
        textcoords="offset points",
        color=TARGET,
        fontsize=FONT_SIZE,
    )
    if reached is not None:
        axes.plot([reached.time_s], [reached.loss], "o", markersize=9, color="none", markeredgecolor=TARGET, mew=2)
        axes.annotate(
            seconds_text(reached.time_s),
            (reached.time_s, reached.loss),
            xytext=(0, -8),  # below the point: a loss that falls comes from above it
            textcoords="offset points",
            ha="right",
            va="top",
            color=TARGET,
            fontsize=FONT_SIZE,
            fontweight="bold",
        )


def _with_target(scores: Sequence[Score], target_loss: float | None) -> list[float]:
    return [score.loss for score in scores] + ([] if target_loss is None else [target_loss])
