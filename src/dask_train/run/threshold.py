"""Rules to stop by that are written as text: ``"val_loss < 0.1 or seconds > 600"``."""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dask_train.run.stop_rule import ORIGIN, PROGRESS, AllScores, RunProgress, StopRule, number, origin, tells

_OPERATORS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
_COMPARISON = re.compile(
    r"""(?P<name>[^\W\d](?:[\w/.\-]*\w)?) \s*
        (?P<operator><=|>=|<|>) \s*
        (?P<limit>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)""",
    re.VERBOSE,
)


@dataclass(frozen=True)
class _Comparison:
    name: str
    sign: str
    limit: float

    def holds(self, value: float) -> bool:
        return bool(_OPERATORS[self.sign](value, self.limit))

    def sentence(self, value: float, score: Mapping[str, Any] | None = None) -> str:
        return f"{self.name} is {self._shown(value)} {self.sign} {self.limit:.15g}{origin(score or {})}"

    def _shown(self, value: float) -> str:
        """As few digits as leave the comparison true: 0.09999996 < 0.1 is not shown as 0.1 < 0.1."""
        formats = (".0f",) if abs(value) >= 1000 else ()
        for form in (*formats, ".4g", ".7g", ".10g"):
            if self.holds(float(shown := f"{value:{form}}")):
                return shown
        return repr(value)


@dataclass(frozen=True)
class Threshold(StopRule):
    """Comparisons with numbers, as ``"val_loss < 0.1"`` or ``"accuracy >= 0.99 and steps > 500 or seconds > 600"``.

    Parameters
    ----------
    text
        ``name < number`` with ``<``, ``<=``, ``>`` or ``>=``; several with ``and`` and ``or``, of which ``and`` binds
        tighter. A name is a reported score's (letters, digits, ``_``, and between them ``/ . -``), or ``steps`` or
        ``seconds`` for those of :class:`RunProgress`, unless a role reports a score of that name. ``epoch`` of ``fit``
        counts from 0 as in ``result.epoch``, and when it has ended.

    Raises
    ------
    ValueError
        This is no such rule.

    Notes
    -----
    Each report is looked at, whatever role it is from, so one that meets a lone comparison stops the run even where a
    later one does not. In an ``and``, each name stands for its latest value. NaN, and what is no number, meets nothing.
    """

    text: str
    _clauses: tuple[tuple[_Comparison, ...], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        clauses = tuple(
            tuple(_parsed(comparison, self.text) for comparison in re.split(r"\s+and\s+", clause))
            for clause in re.split(r"\s+or\s+", self.text.strip())
        )
        object.__setattr__(self, "_clauses", clauses)

    @property
    def names(self) -> frozenset[str]:
        """See :attr:`StopRule.names`."""
        return frozenset(c.name for clause in self._clauses for c in clause if c.name not in PROGRESS)

    @property
    def looks_at_progress(self) -> bool:
        """Return whether it may look at the steps or seconds of the run."""
        return any(comparison.name in PROGRESS for clause in self._clauses for comparison in clause)

    def met(self, scores: AllScores, progress: RunProgress, since: int = 0) -> str:
        """See :meth:`StopRule.met`."""
        matches = [_clause_met(clause, scores, progress, since) for clause in self._clauses]
        _, reason = min(filter(None, matches), key=lambda each: each[0], default=(0, ""))
        return reason


def _parsed(comparison: str, text: str) -> _Comparison:
    match = _COMPARISON.fullmatch(comparison.strip())
    if match is None or match["name"] in ("and", "or"):
        raise ValueError(
            f"{text!r} is no rule to stop by: {comparison.strip()!r} is not 'name < number'. Write it like "
            "'val_loss < 0.1' or 'accuracy >= 0.99 and steps > 500 or seconds > 600', with < <= > >=."
        )
    if match["name"] in ORIGIN:
        raise ValueError(
            f"{text!r} is no rule to stop by: {match['name']} tells where a score is from and is no score. "
            "Compare what roles report, or steps or seconds, like 'val_loss < 0.1 or seconds > 600'."
        )
    return _Comparison(match["name"], match["operator"], float(match["limit"]))


def _clause_met(
    clause: tuple[_Comparison, ...], scores: AllScores, progress: RunProgress, since: int
) -> tuple[int, str] | None:
    """Return with which score all comparisons hold together, first after the last call, and why.

    None if they don't.
    """
    reasons: dict[_Comparison, str] = {}
    for comparison in clause:
        if comparison.name in PROGRESS and comparison.name not in progress.reported:
            value = getattr(progress, comparison.name)
            if not comparison.holds(value):
                return None
            reasons[comparison] = comparison.sentence(value)
    of_scores = [comparison for comparison in clause if comparison not in reasons]
    names = {comparison.name for comparison in of_scores}
    latest = _latest(names, scores, since) if len(clause) > 1 else {}
    for i in range(since - 1, len(scores)):  # the first turn is for progress that has come since the last call
        arrived = {name: scores[i] for name in names if i >= since and tells(name, scores[i])}
        latest.update(arrived)
        if not (arrived or i < since) or len(latest) < len(names):
            continue
        if all(c.holds(number(latest[c.name][c.name])) for c in of_scores):
            score_reasons = {c: c.sentence(number(latest[c.name][c.name]), latest[c.name]) for c in of_scores}
            return i, " and ".join((reasons | score_reasons)[comparison] for comparison in clause)
    return None


def _latest(names: set[str], scores: AllScores, before: int) -> dict[str, Mapping[str, Any]]:
    """Return the last score before an index for each name, where there is one; mostly a few steps back."""
    earlier = range(before - 1, -1, -1)
    latest = {name: next((scores[i] for i in earlier if tells(name, scores[i])), None) for name in names}
    return {name: score for name, score in latest.items() if score is not None}
