"""The base of stopping rules, and the progress of a run as they see it.

A rule is a value: it keeps nothing from one call to the next, so it can be pickled, shared, and asked again about the
same scores. It is asked after each arrival of scores, with the index of the first new one, so that a long run isn't
read again each time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

AllScores = Sequence[Mapping[str, Any]]
# Names in rules for the progress of the run.
PROGRESS = frozenset({"steps", "seconds"})
# Of a scorer: how many steps parameter servers have taken.
UPDATES = "updates"
# Of a score of ``fit``: an epoch counts when it has ended, as in the history. Within it scores have the step, too.
EPOCH = "epoch"
WITHIN_AN_EPOCH = frozenset({"step", "num_steps"})
# What a score tells besides, of where it is from.
ORIGIN = frozenset({"role", "rank", "attempt", "time"})


@dataclass(frozen=True, kw_only=True)
class RunProgress:
    """Progress of a run, as stopping rules see it.

    Attributes
    ----------
    steps
        The most batches that any training role took; of its own data, where it has some, so not of a validation.
    seconds
        Since the roles started.
    reported
        Which of these names roles have given to scores of their own; a rule that names one means that score then.
    """

    steps: int
    seconds: float
    reported: frozenset[str] = frozenset()


class StopRule:
    """Base of all rules that end a run; a value without state."""

    @property
    def names(self) -> frozenset[str]:
        """The scores that it can't be met without, by name, as far as it knows them."""
        return frozenset()

    def met(self, scores: AllScores, progress: RunProgress, since: int = 0) -> str:
        """Return the reason to stop as a phrase, or ``""`` if there is none.

        Parameters
        ----------
        scores
            All scores of the run, in the order in which they arrived: what roles reported, and ``role``, ``rank``,
            ``attempt``, ``time``.
        progress
            Progress of the run.
        since
            Index of the first new score, since the last call, which found no reason. Default: 0.

        Returns
        -------
        str
            Empty while no rule ends the run.
        """
        raise NotImplementedError(f"{type(self).__name__} does not say when it is met; give it a method met().")


def number(value: Any) -> float:
    """Return a score as a float; NaN for what is no number."""
    if type(value) is float:
        return value
    try:
        return math.nan if isinstance(value, str | bytes) else float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def tells(name: str, score: Mapping[str, Any]) -> bool:
    """Return whether a score has a value of that name that a rule looks at."""
    return name in score and not (name == EPOCH and score.keys() >= WITHIN_AN_EPOCH)


def origin(score: Mapping[str, Any]) -> str:
    """Return who reported a score, as `` (scorer 0)``; ``""`` where it does not say."""
    return f" ({score['role']} {score.get('rank', '')}".rstrip() + ")" if "role" in score else ""


_Place = tuple[float, float]
_NOWHERE: _Place = (-math.inf, -math.inf)


@dataclass(frozen=True)
class ReportedBy:
    """What is known of the reports of a role: where its attempts have come to, by epoch or updates, and step.

    Parameters
    ----------
    attempt
        Its last one.
    furthest, num_there
        The furthest place of all attempts, and the number of reports there.
    before, num_before
        The same of earlier attempts.
    last, num_again
        The place of the last report of this attempt, and the number of its reports at ``before``.
    is_ordered
        Whether places have never gone back within an attempt, as they do in a loop over folds.
    """

    attempt: Any
    furthest: _Place = _NOWHERE
    num_there: int = 0
    before: _Place = _NOWHERE
    num_before: int = 0
    last: _Place = _NOWHERE
    num_again: int = 0
    is_ordered: bool = True

    def then(self, attempt: Any, place: _Place) -> tuple[ReportedBy, bool]:
        """Return what is known after one more report, and whether an earlier attempt has made it already."""
        known = self
        if attempt > self.attempt:
            known = ReportedBy(
                attempt, self.furthest, self.num_there, self.furthest, self.num_there, is_ordered=self.is_ordered
            )
        is_ordered = known.is_ordered and not place < known.last
        num_again = known.num_again + (place == known.before)
        is_known = place < known.before or (place == known.before and num_again <= known.num_before)
        is_repeated = is_ordered and is_known
        furthest, num_there = known.furthest, known.num_there
        if place > furthest:
            furthest, num_there = place, 1
        elif place == furthest and not is_repeated:
            num_there += 1
        known = replace(known, furthest=furthest, num_there=num_there)
        return replace(known, last=place, num_again=num_again, is_ordered=is_ordered), is_repeated


# By name and rank of a role.
Reached = dict[tuple[Any, Any], ReportedBy]


def comes_again(score: Mapping[str, Any], reached: Reached) -> bool:
    """Return whether a role has made this report in an earlier attempt; note how far it is."""
    unit = next((name for name in (EPOCH, UPDATES) if name in score), None)
    if unit is None or "attempt" not in score:
        return False
    role, attempt = (score.get("role"), score.get("rank")), score["attempt"]
    place = (number(score[unit]), number(score.get("step", math.inf)))
    reached[role], is_repeated = reached.get(role, ReportedBy(attempt)).then(attempt, place)
    return is_repeated
