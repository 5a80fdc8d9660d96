"""Small charts of scores as they come, for cards in notebooks; without matplotlib, which takes a second to import.

Owns which scores make a curve, how many of their points are kept, and how it is drawn.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

from dask_train.report.formats import score_text
from dask_train.scores import CurveNames

# A chart is 180 pixels wide: more points than twice that can't be seen.
MOST_POINTS = 360
MOST_CHARTS = 6
WIDTH, HEIGHT = 180, 48

_COLOURS = {"training": "#0072b2", "validation": "#d55e00"}


class Curves:
    """The curves of a run's scores, thinned as they grow: by name, of training and of validation (``val_...``)."""

    def __init__(self) -> None:
        self._lines: dict[str, dict[str, list[tuple[float, float]]]] = {}
        self._every: dict[tuple[str, str], tuple[int, int]] = {}  # which points are kept, and how many there were
        self._num_seen = 0
        self._names = CurveNames()

    def take(self, scores: Sequence[Mapping[str, object]]) -> None:
        """Take what is new among all scores of a run; those of each role's first rank make curves."""
        for score in scores[self._num_seen :]:
            for name, value in self._names.values(score).items():
                rows = "validation" if name.startswith("val_") else "training"
                self.add(name.removeprefix("val_"), rows, (float(score.get("time", 0.0)), value))  # type: ignore[arg-type]
        self._num_seen = len(scores)

    def add(self, name: str, line: str, point: tuple[float, float]) -> None:
        """Add a point to a line of a chart; every second of them goes where there are too many."""
        points = self._lines.setdefault(name, {}).setdefault(line, [])
        every, count = self._every.get((name, line), (1, 0))
        if math.isfinite(point[1]) and count % every == 0:
            points.append(point)
            if len(points) > MOST_POINTS:
                del points[1::2]
                every *= 2
        self._every[name, line] = (every, count + 1)

    def svgs(self) -> list[str]:
        """Return a chart of each name that has two points on a line at least."""
        lines_by_name = {
            name: lines for name, lines in self._lines.items() if any(len(line) > 1 for line in lines.values())
        }
        return [small_chart(name, lines) for name, lines in list(lines_by_name.items())[:MOST_CHARTS]]


def small_chart(name: str, lines: Mapping[str, Sequence[tuple[float, float]]]) -> str:
    """Draw lines over a common axis as an ``<svg>`` element.

    Parameters
    ----------
    name
        Of the values; stands above, with the last value of each line.
    lines
        Points by the name of their series; finite, at least one.
    """
    points = [point for line in lines.values() for point in line]
    (left, low), (right, high) = (tuple(map(of, zip(*points, strict=True))) for of in (min, max))
    across, up = (right - left) or 1.0, (high - low) or 1.0

    def place(point: tuple[float, float]) -> str:
        return f"{(point[0] - left) / across * WIDTH:.1f},{20 + (1 - (point[1] - low) / up) * HEIGHT:.1f}"

    drawn = "".join(
        f'<polyline fill="none" stroke="{_COLOURS.get(of, "#009e73")}" stroke-width="1.5" '
        f'points="{" ".join(map(place, line))}"/>'
        for of, line in lines.items()
        if line
    )
    last = {of: score_text(line[-1][1]) for of, line in lines.items() if line}
    value_labels = "".join(
        f'<tspan fill="{_COLOURS.get(of, "#009e73")}" dx="6">{text}</tspan>' for of, text in last.items()
    )
    # A lone line may be of any rows, as its name says.
    words = ", ".join(text if [*last] == ["training"] else f"{of} {text}" for of, text in last.items())
    return (
        f'<svg role="img" aria-label="{escape(name)}: {words}" width="{WIDTH + 8}" height="{HEIGHT + 26}" '
        f'viewBox="-4 0 {WIDTH + 8} {HEIGHT + 26}" font-size="11" font-family="sans-serif">'
        f'<text x="0" y="11" fill="currentColor">{escape(name)}{value_labels}</text>{drawn}</svg>'
    )
