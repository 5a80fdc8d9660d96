"""What a run has reported over time, as the page and the metrics need it: its curves, its rate, its restarts."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .spans import Spans
from .times import Times, Usage

# Of a longer curve every second point goes, again and again: a screen shows no more.
MOST_POINTS = 1000
# Of a run with more curves, as a search of thousands of trials, the later ones are not kept.
MOST_CURVES = 500
# The same of the least and most of the scores of trials.
MOST_BOUNDS = 10_000
# Over how many seconds a rate is taken.
RATE_S = 10.0
# Where a score's place is found, the first of these that it has; else scores are counted.
STEPS = ("step", "steps", "num_steps", "round", "epoch")
# Where a score was made; all else that is a number makes a curve.
PLACE = frozenset({"role", "rank", "attempt", "time", "trial", *STEPS})


@dataclass(frozen=True)
class CurveKey:
    """Whose curve it is, and of what."""

    name: str
    role: str
    rank: int
    attempt: int
    trial: int | None


@dataclass
class Curve:
    """The values of one score of one role, thinned as they grow; the last one is always there."""

    # Points of the curve; a value that is not finite is NaN.
    x: list[float] = field(default_factory=list)
    y: list[float] = field(default_factory=list)
    times: list[float] = field(default_factory=list)  # when each was heard, in seconds since the epoch
    count: int = 0
    every: int = 1
    along: str = ""
    # The extreme values of all, also of those that were thinned out, each with its x. Values within an epoch do not
    # count: Keras reports means over a part of the rows there.
    least: tuple[float, float] | None = None
    most: tuple[float, float] | None = None

    def add(self, x: float, y: float, now: float = 0.0, *, is_whole: bool = True) -> None:
        """Add a point; what is no number is a gap."""
        lists = (self.x, self.y, self.times)
        if self.x and (self.count - 1) % self.every:  # the last one stood there only until this one came
            for values in lists:
                values.pop()
        for values, value in zip(lists, (x, y if math.isfinite(y) else math.nan, now), strict=True):
            values.append(value)
        self.count += 1
        if is_whole and math.isfinite(y):
            self.least = min(self.least or (y, x), (y, x), key=_value)
            self.most = max(self.most or (y, x), (y, x), key=_value)
        if len(self.x) > MOST_POINTS:
            for values in lists:
                values[:] = values[::2]
            self.every *= 2


def _value(point: tuple[float, float]) -> float:
    return point[0]


@dataclass
class Trace:
    """One run, as the scheduler hears it."""

    curves: dict[CurveKey, Curve] = field(default_factory=dict)
    left_out: bool = False  # there were more curves than are kept
    num_scores: int = 0
    num_batches: dict[str, int] = field(default_factory=dict)  # by role, of all attempts
    num_restarts: int = 0
    running_since: float = 0.0
    times: Times = field(default_factory=Times)
    usage: Usage = field(default_factory=Usage)
    spans: Spans = field(default_factory=Spans)
    pictures: dict[tuple[str, int], tuple[float, Mapping[str, Any]]] = field(default_factory=dict)  # when, and what
    trial_bounds: dict[tuple[int, str], tuple[float, float]] = field(default_factory=dict)  # by trial and score
    _attempts: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)
    _counts: deque[tuple[float, int]] = field(default_factory=deque)

    def summary(self, summary: Mapping[str, Any], now: float) -> None:
        """Take over what a run's driver said last of the run."""
        self.num_restarts = max(self.num_restarts, int(summary.get("num_restarts", 0)))
        if summary.get("phase") == "running" and not self.running_since:
            self.running_since = now
        for role, rank, _, attempt, _, _, _, steps in summary.get("roles", ()):
            last, counted = self._attempts.get((role, rank), (attempt, 0))
            new = steps if attempt != last else steps - counted
            self.num_batches[role] = self.num_batches.get(role, 0) + max(0, new)
            self._attempts[role, rank] = (attempt, steps)
        self._counts.append((now, sum(self.num_batches.values())))
        while len(self._counts) > 2 and now - self._counts[1][0] >= RATE_S:
            self._counts.popleft()

    def score(self, score: Mapping[str, Any], now: float = 0.0) -> None:
        """Add one report of a role to the curves, which was heard now."""
        self.num_scores += 1
        is_whole = not ("epoch" in score and "num_steps" in score and "step" in score)
        along, x = _place(score)
        for name, value in score.items():
            if name in PLACE or not _is_number(value):
                continue
            if is_whole:
                self._bound(score.get("trial"), name, float(value))
            key = CurveKey(name, score["role"], score["rank"], score["attempt"], score.get("trial"))
            if key not in self.curves and len(self.curves) >= MOST_CURVES:
                self.left_out = True
                continue
            curve = self.curves.setdefault(key, Curve(along=along))
            at = x if along == curve.along else score.get(curve.along)
            x_at = float(at) if isinstance(at, int | float) else float(curve.count + 1)
            curve.add(x_at, float(value), now, is_whole=is_whole)

    def _bound(self, trial: int | None, name: str, value: float) -> None:
        if trial is None or not math.isfinite(value):
            return
        if (trial, name) in self.trial_bounds or len(self.trial_bounds) < MOST_BOUNDS:
            least, most = self.trial_bounds.get((trial, name), (value, value))
            self.trial_bounds[trial, name] = (min(least, value), max(most, value))

    def take_progress(self, events: Sequence[Any], now: float) -> Iterator[tuple[tuple[str, int, str], float]]:
        """Take over what roles tell with their progress, and pictures of them.

        Returns
        -------
        iterator
            Of seconds that are new, by role, rank and what they went to.
        """
        for name, fields, of in events:
            if name == "Progress":
                self.usage.tell(of, fields, now)
                yield from self.times.tell(of, fields, now)
            elif name == "Pictured":
                self.pictures[of[0], of[1]] = (now, fields)

    def rate(self, now: float) -> float:
        """Batches a second of all roles, over the last seconds."""
        if not self._counts or now - self._counts[-1][0] > RATE_S:
            return 0.0
        (begin, first), (_, last) = self._counts[0], self._counts[-1]
        return (last - first) / (now - begin) if now > begin else 0.0


def scores_in(events: Sequence[Any]) -> list[dict[str, Any]]:
    """Return the scores among what agents have reported, as ``dask_train.process.messages`` writes it."""
    return [score for name, fields, _ in events if name == "Reported" for score in fields["scores"]]


def _place(score: Mapping[str, Any]) -> tuple[str, Any]:
    """Return what a score is counted along, and where it is; epochs that have steps go by their parts."""
    epoch, step, num_steps = map(score.get, ("epoch", "step", "num_steps"))
    if _is_number(epoch) and _is_number(num_steps) and num_steps:
        return "epoch", epoch + (step if _is_number(step) else num_steps) / num_steps
    along = next((name for name in STEPS if _is_number(score.get(name))), "")
    return along, score.get(along)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
