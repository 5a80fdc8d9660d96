"""Reported scores: which of their numbers are values, what tells where and when one was made, and whose a name is."""

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


class CurveNames:
    """Names the curves of scores, which come in order: a name is of the role that reports it first.

    That of the same name of another role begins with the role, as in ``"scorer/loss"``.
    """

    def __init__(self) -> None:
        self._owners: dict[str, str] = {}

    def prefix(self, name: str, role: str) -> str:
        """Return what the name of a role's curve begins with, which the role has reported as ``name``."""
        return "" if self._owners.setdefault(name, role) == role else f"{role}/"

    def values(self, score: Mapping[str, Any]) -> dict[str, float]:
        """Return the numbers of a score by the names of their curves; none unless it is of its role's first rank."""
        if score.get("rank", 0) != 0:
            return {}
        role = str(score.get("role", ""))
        return {self.prefix(name, role) + name: value for name, value in values_of(score).items()}
