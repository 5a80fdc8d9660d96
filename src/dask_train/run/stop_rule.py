"""The base of stopping rules, and the progress of a run as they see it.

A rule is a value: it keeps nothing from one call to the next, so it can be pickled, shared, and asked again about the
same scores. It is asked after each arrival of scores, with the index of the first new one, so that a long run isn't
read again each time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

AllScores = Sequence[Mapping[str, Any]]
# Names in rules for the progress of the run.
PROGRESS = frozenset({"steps", "seconds"})
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
        Since the roles started for the first time.
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


def of_one(value: Any) -> Any:
    """Return the number in an array of one number, such as the F1 score of the only class; any other score itself."""
    return value[0] if getattr(value, "shape", ()) == (1,) else value


def number(value: Any) -> float:
    """Return a score as a float; NaN for what is no number."""
    if type(value) is float:
        return value
    value = of_one(value)
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
