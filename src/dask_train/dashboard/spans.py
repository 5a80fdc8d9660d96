"""The course of each role over time, from what the run's driver notes: from which moment on it was in which phase."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Key = tuple[str, int]

# What a role's phase, as ``dask_train.run.state.RolePhase`` names it, is called on the chart; others are its end.
KINDS = {
    "waiting for room": "waiting for room",
    "starting": "launching",
    "ready": "launching",
    "meeting its peers": "launching",
    "running": "training",
    "being killed": "ending",
}
# Of a role with more spans, as one that is restarted for days, the last ones are kept.
MOST_SPANS = 200


@dataclass
class RoleSpan:
    """A time in which a role did one thing; ``end`` is 0 while it lasts."""

    kind: str
    attempt: int
    start: float
    end: float = 0.0


@dataclass(frozen=True)
class Mark:
    """Something that happened to a role at one moment: it was lost, or has returned."""

    kind: str
    attempt: int
    time: float
    text: str = ""


@dataclass
class RoleCourse:
    """Spans and marks of one role, in order."""

    spans: list[RoleSpan] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    phase: str = ""
    attempt: int = 0


class Spans(dict[Key, RoleCourse]):
    """The courses of all roles of a run."""

    def summary(self, summary: Mapping[str, Any], now: float, *, over: bool) -> None:
        """Take over what the run's driver says of its roles."""
        causes = summary.get("losses", ())
        for role, rank, phase, attempt, *_ in summary.get("roles", ()):
            course = self.setdefault((role, rank), RoleCourse(attempt=attempt))
            if (phase, attempt) != (course.phase, course.attempt):
                self._turn(course, phase, attempt, now, str(causes[-1]) if causes else "")
        if over:
            for course in self.values():
                _close(course, now)

    def _turn(self, course: RoleCourse, phase: str, attempt: int, now: float, cause: str) -> None:
        if attempt != course.attempt and course.phase not in ("returned", "waiting for room"):
            course.marks.append(Mark("lost", course.attempt, now, cause))
        elif phase == "returned":
            course.marks.append(Mark("returned", attempt, now))
        kind = KINDS.get(phase, "")
        last = course.spans[-1] if course.spans and not course.spans[-1].end else None
        if last is None or (kind, attempt) != (last.kind, last.attempt):
            _close(course, now)
            if kind:
                course.spans.append(RoleSpan(kind, attempt, now))
        course.phase, course.attempt = phase, attempt
        del course.spans[:-MOST_SPANS], course.marks[:-MOST_SPANS]


def _close(course: RoleCourse, now: float) -> None:
    if course.spans and not course.spans[-1].end:
        course.spans[-1].end = now
