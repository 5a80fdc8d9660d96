"""Reported scores: which of their numbers are values, and which tell where and when a score was made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Where a score is found, the first of these that it has; else reports of its role are counted. The dashboard's page,
# which the scheduler is sent alone, has the same order.
AXES = ("step", "steps", "num_steps", "round", "epoch")
# Where and when a score was made; the rest are values.
PLACE = frozenset({"role", "rank", "attempt", "time", "trial", *AXES})


def is_number(value: Any) -> bool:
    """Return whether something is a number, and no truth value."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def values_of(score: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers of a score, without those that tell where it was made."""
    return {name: float(value) for name, value in score.items() if name not in PLACE and is_number(value)}
