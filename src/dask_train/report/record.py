"""What a run leaves behind to be looked at, as plain values that are checked when they are made.

Owns the record and its rules. Doesn't measure anything and doesn't draw anything. All times are seconds on one
clock, the run's own, whose zero is the start of the run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True, slots=True)
class Span:
    """A named stretch of time.

    Parameters
    ----------
    name
        Activity, such as ``"train"``; spans of one name get one colour.
    start_s, end_s
        Seconds from the start of the run. Equal times are an instant that the clock couldn't resolve.

    Raises
    ------
    ValueError
        The name is empty, a time isn't finite, or the span ends before it starts.
    TypeError
        A field is of the wrong kind.
    """

    name: str
    start_s: float
    end_s: float

    def __post_init__(self) -> None:
        _require_text("The name of a span", self.name)
        _require_finite(f"The start of the span {self.name!r}", self.start_s)
        _require_finite(f"The end of the span {self.name!r}", self.end_s)
        if self.end_s < self.start_s:
            raise ValueError(
                f"The span {self.name!r} ends at {self.end_s:g} s, before its start at {self.start_s:g} s. "
                "The two times are probably from different clocks or in the wrong order. "
                "Give both in seconds from the start of the run."
            )

    @property
    def duration_s(self) -> float:
        """Seconds from the start to the end, never negative."""
        return self.end_s - self.start_s


@dataclass(frozen=True, kw_only=True, slots=True)
class RoleTimeline:
    """What one role did, and when.

    Parameters
    ----------
    role
        ``"chief"``, ``"worker"``, ``"ps"`` or ``"scorer"``.
    rank
        The role's number among those of its kind, from 0.
    address
        Where it ran, such as ``"tcp://127.0.0.1:3123"``; may be empty.
    spans
        In any order; they may be empty, and may overlap.

    Raises
    ------
    ValueError
        The role is empty or the rank is negative.
    TypeError
        A field is of the wrong kind.
    """

    role: str
    rank: int
    address: str
    spans: tuple[Span, ...]

    def __post_init__(self) -> None:
        _require_text("The role of a timeline", self.role)
        _require_count(f"The rank of a {self.role!r} timeline", self.rank)
        _require_each(f"The spans of {self.role} {self.rank}", self.spans, Span)

    @property
    def label(self) -> str:
        """The role as people read it, such as ``"worker 2 · tcp://127.0.0.1:3123"``."""
        name = f"{self.role} {self.rank}"
        return f"{name} · {self.address}" if self.address else name


@dataclass(frozen=True, kw_only=True, slots=True)
class Score:
    """One look at the model while it was trained.

    Parameters
    ----------
    time_s
        Seconds from the start of the run.
    loss
        The loss on the rows that were kept for scoring.
    accuracy
        The share of right answers, from 0 to 1; None if none was computed.
    step
        Train steps applied before this score; None if unknown.
    rows_trained
        Rows trained before this score; None if unknown.
    rows
        Which rows were looked at, such as ``"training"`` and ``"validation"``, each of which gets a curve of its own;
        empty if there are no several.

    Raises
    ------
    ValueError
        A figure isn't finite or is out of its range. A run that diverged has no score there: leave it out and say
        so in the record's summary.
    TypeError
        A field isn't a Python or NumPy number.
    """

    time_s: float
    loss: float
    accuracy: float | None
    step: int | None
    rows_trained: int | None
    rows: str = ""

    def __post_init__(self) -> None:
        _require_finite("The time of a score", self.time_s)
        _require_finite(f"The loss of the score at {self.time_s:g} s", self.loss)
        if self.accuracy is not None:
            _require_finite(f"The accuracy of the score at {self.time_s:g} s", self.accuracy)
            if not 0 <= self.accuracy <= 1:
                raise ValueError(
                    f"The accuracy of the score at {self.time_s:g} s is {self.accuracy:g}, not between 0 and 1. "
                    "It may be in percent. Divide it by 100."
                )
        for name, value in (("step", self.step), ("rows_trained", self.rows_trained)):
            if value is not None:
                _require_count(f"The {name} of the score at {self.time_s:g} s", value)


@dataclass(frozen=True, kw_only=True, slots=True)
class Metric:
    """What a metric came to over epochs or rounds.

    Parameters
    ----------
    name
        Such as ``"auc"``.
    unit
        What its numbers are of, such as ``"round"``.
    lines
        Points by the rows that were looked at, such as ``"training"``: numbers of epochs or rounds, and values. At
        least one line, each with a point at least.

    Raises
    ------
    ValueError
        A name is empty, there is no point, or one isn't finite.
    TypeError
        A field is of the wrong kind.
    """

    name: str
    unit: str
    lines: Mapping[str, Sequence[tuple[float, float]]]

    def __post_init__(self) -> None:
        _require_text("The name of a metric", self.name)
        _require_text(f"The unit of the metric {self.name!r}", self.unit)
        if not self.lines or not all(self.lines.values()):
            raise ValueError(f"The metric {self.name!r} has a line without a point, or none. Leave it out.")
        for points in self.lines.values():
            for point in points:
                for number in point:
                    _require_finite(f"A point of the metric {self.name!r}", number)

    @property
    def judged(self) -> str:
        """The rows whose line says how good the model is: the last that were not trained on, where there are some."""
        return next((rows for rows in reversed([*self.lines]) if rows != "training"), "training")


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)  # arrays don't compare to one truth value
class RunRecord:
    """All that the report of a run is drawn from.

    Parameters
    ----------
    title
        One line that names the run.
    target_loss
        The loss at which the run was to stop; None if there was no such rule.
    scores
        In any order; may be empty.
    phases
        The run's own phases, such as ``"prepare"``, ``"launch"``, ``"train"``.
    roles
        One timeline a role, in the order in which they are shown.
    pictures
        Name to picture: 2-d numbers, (28, 28) for MNIST, of any real dtype. Each is copied once, to a read-only
        float64 array.
    summary
        Pairs of a word and its value, shown as they are.
    machine
        What the run ran on, in words; may be empty.
    metrics
        What is not among the scores; each gets a curve.

    Raises
    ------
    ValueError
        The title is empty, the target isn't finite, or a picture isn't 2-d, is empty or isn't finite.
    TypeError
        A field is of the wrong kind.
    """

    title: str
    target_loss: float | None
    scores: tuple[Score, ...]
    phases: tuple[Span, ...]
    roles: tuple[RoleTimeline, ...]
    pictures: Mapping[str, NDArray[np.float64]]
    summary: tuple[tuple[str, str], ...]
    machine: str
    metrics: tuple[Metric, ...] = ()

    def __post_init__(self) -> None:
        _require_text("The title of a run", self.title)
        if self.target_loss is not None:
            _require_finite("The target loss", self.target_loss)
        _require_each("The scores of a run", self.scores, Score)
        _require_each("The metrics of a run", self.metrics, Metric)
        _require_each("The phases of a run", self.phases, Span)
        _require_each("The roles of a run", self.roles, RoleTimeline)
        for pair in self.summary:
            _require_pair(pair)
        pictures = {name: checked_picture(name, picture) for name, picture in self.pictures.items()}
        object.__setattr__(self, "pictures", pictures)

    @property
    def scores_in_order(self) -> tuple[Score, ...]:
        """The scores by time; those of equal time keep their order."""
        return tuple(sorted(self.scores, key=lambda score: score.time_s))

    @property
    def judged(self) -> tuple[Score, ...]:
        """The scores that say how good the model is, by time: those of validation where there are some."""
        scores = self.scores_in_order
        return tuple(score for score in scores if score.rows == "validation") or scores

    @property
    def start_s(self) -> float:
        """The earliest time in the record, 0 at the latest."""
        return min((0.0, *(span.start_s for span in self._all_spans()), *(score.time_s for score in self.scores)))

    @property
    def end_s(self) -> float:
        """The latest time in the record, 0 at the earliest."""
        return max((0.0, *(span.end_s for span in self._all_spans()), *(score.time_s for score in self.scores)))

    @property
    def target_reached(self) -> Score | None:
        """The first score with a loss at or below the target; None without a target or such a score."""
        if self.target_loss is None:
            return None
        target = self.target_loss
        return next((score for score in self.scores_in_order if score.loss <= target), None)

    def _all_spans(self) -> tuple[Span, ...]:
        return self.phases + tuple(span for role in self.roles for span in role.spans)


def checked_picture(name: str, picture: object) -> NDArray[np.float64]:
    """Check that something is a picture and copy it once.

    Parameters
    ----------
    name
        What to call it in an error.
    picture
        An array of rank 2 with finite numbers (or bools) of any real dtype.

    Returns
    -------
    NDArray[np.float64]
        A read-only copy of the same shape.

    Raises
    ------
    ValueError
        It isn't 2-d, has no pixels, or holds a value that isn't finite.
    TypeError
        Its dtype isn't real.
    """
    _require_text("The name of a picture", name)
    array = np.asarray(picture)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"The picture {name!r} is of dtype {array.dtype}, not of a real number.")
    if array.ndim != 2 or array.size == 0:
        raise ValueError(
            f"The picture {name!r} is of shape {array.shape}. Only 2-d pictures with at least one pixel can be drawn. "
            "Reshape it, for MNIST to (28, 28)."
        )
    if not np.isfinite(array).all():
        raise ValueError(f"The picture {name!r} holds NaN or infinity. Replace them before it goes into a report.")
    copied = np.array(array, dtype=np.float64)
    copied.flags.writeable = False
    return copied


def _require_text(what: str, value: object) -> None:
    if not isinstance(value, str):
        raise TypeError(f"{what} is a {type(value).__name__}, not a string.")
    if not value.strip():
        raise ValueError(f"{what} is empty. Give it at least one letter.")


def _require_finite(what: str, value: object) -> None:
    if not isinstance(value, Real):
        raise TypeError(f"{what} is a {type(value).__name__}, not a number. Convert it with float().")
    if not math.isfinite(value):
        raise ValueError(f"{what} is {value}, not a finite number.")


def _require_count(what: str, value: object) -> None:
    if not isinstance(value, Integral):
        raise TypeError(f"{what} is a {type(value).__name__}, not an integer. Convert it with int().")
    if value < 0:
        raise ValueError(f"{what} is {value}. It can't be negative.")


def _require_pair(value: object) -> None:
    if not (isinstance(value, tuple) and len(value) == 2 and all(isinstance(part, str) for part in value)):
        raise TypeError(f"The summary holds {value!r}, not a pair of strings. Format its value first.")


def _require_each(what: str, values: object, kind: type) -> None:
    if not isinstance(values, tuple):
        raise TypeError(f"{what} are a {type(values).__name__}, not a tuple. Convert them with tuple().")
    for value in values:
        if not isinstance(value, kind):
            raise TypeError(f"{what} hold a {type(value).__name__}, not only {kind.__name__} values.")
