"""Scores as points of curves: a name, a value, a step and a time."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dask_train.logging.base import Score
from dask_train.scores import AXES, CurveNames, is_number, values_of

# Roles whose names have no prefix if no other role has reported them before. All others always have one: which of
# several roles reports first may differ from run to run, and trackers compare curves of one name.
_PLAIN = frozenset({"worker", "scorer"})


@dataclass(frozen=True, slots=True)
class Point:
    """A value of a curve.

    Attributes
    ----------
    name
        Of the curve; see :class:`~dask_train.scores.CurveNames`. Those of other ranks than the first have the rank.
    value
        May be NaN or infinite.
    step
        Place on its axis: the epoch, from 0, of what Keras reports at its end; the step within training, counted
        through all epochs, of what it reports in between (whose names begin with ``step/``); of other scores the first
        of ``step``, ``steps``, ``num_steps``, ``round`` and ``epoch`` that they have, or how many their role has
        reported before.
    time
        When it was reported, in seconds since the epoch.
    along
        What the axis is called; ``"step"`` where reports are counted.
    """

    name: str
    value: float
    step: int
    time: float
    along: str = "step"


class Points:
    """Makes points of scores, which come in order.

    Parameters
    ----------
    first
        Where the count of reports begins. Default: 0.
    """

    def __init__(self, first: int = 0) -> None:
        self._first = first
        self._counts: Counter[tuple[Any, Any]] = Counter()
        self._names = CurveNames()

    def of(self, scores: Sequence[Score]) -> list[Point]:
        """Return the points of the next scores."""
        return [point for score in scores for point in self._of(score)]

    def _of(self, score: Score) -> Iterator[Point]:
        role, rank = score.get("role", "worker"), score.get("rank", 0)
        before, along, step = self._place(score, role, rank)
        within = (f"rank {rank}/" if rank else "") + before
        for name, value in values_of(score).items():
            prefix = self._names.prefix(name, role) if role in _PLAIN else f"{role}/"
            curve = prefix + within + name
            yield Point(curve, value, step, float(score.get("time", 0.0)), along)

    def _place(self, score: Score, role: Any, rank: Any) -> tuple[str, str, int]:
        place = [score[name] for name in ("epoch", "num_steps", "step") if name in score]
        if "epoch" in score and "num_steps" in score and all(map(_is_finite, place)):
            epoch, num_steps, *steps = place
            if not steps:
                return "", "epoch", int(epoch)
            if math.isfinite(step := epoch * num_steps + steps[0]):
                return "step/", "step", int(step)
        count = self._first + self._counts[role, rank]
        self._counts[role, rank] += 1
        along = next((name for name in AXES if _is_finite(score.get(name))), "")
        return ("", along, int(score[along])) if along else ("", "step", count)


def _is_finite(value: Any) -> bool:
    return is_number(value) and math.isfinite(value)
