"""What a rule to stop by is, and what it is asked about.

A rule is a value: it keeps nothing from one call to the next, so it can be pickled, shared, and asked again about the
same scores. It is asked after each arrival of scores and told which of them are new, so that a long run isn't read
again each time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Scores = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True)
class RunProgress:
    """How far a run is.

    Attributes
    ----------
    steps
        The most batches that any role took.
    seconds
        Since the roles started.
    """

    steps: int
    seconds: float


class StopRule:
    """Base of all rules that end a run; a value without state."""

    def met(self, scores: Scores, progress: RunProgress, since: int = 0) -> str:
        """The reason to stop as a phrase, or ``""`` where there is none.

        Parameters
        ----------
        scores
            All scores of the run, in the order in which they arrived: what roles reported, and ``role``, ``rank``,
            ``attempt``, ``time``.
        progress
            How far the run is.
        since
            The index of the first score that the last call, which found no reason, has not seen.
        """
        raise NotImplementedError(f"{type(self).__name__} does not say when it is met; give it a method met().")


def number(value: Any) -> float:
    """A score as a float; NaN for what is no number."""
    if type(value) is float:
        return value
    try:
        return math.nan if isinstance(value, str | bytes) else float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def origin(score: Mapping[str, Any]) -> str:
    """Who reported a score, as `` (scorer 0)``; ``""`` where it does not say."""
    return f" ({score['role']} {score.get('rank', '')}".rstrip() + ")" if "role" in score else ""
