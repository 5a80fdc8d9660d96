"""How fast a run and its roles are, over the last seconds."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from dask_train.report.fitted import LineField
from dask_train.report.formats import brief_count_text, count_text

# Rates are those of the last seconds; shorter, they jump with every batch.
RATE_OVER_S = 5.0
# A role counts as slow below this share of the fastest one's rate, once that one has made this many batches.
SLOW, FEWEST = 0.8, 10
# What roles have made is heard of with a delay, of a second or two on a busy host. Roles whose batches in all differ by
# less than the fastest one makes meanwhile keep the same pace, whatever the last seconds seem to say.
HEARD_WITHIN_S = 2.0


def rate_field(rank: int, rate: float, unit: str) -> LineField:
    """Return how many of something there are per second."""
    return LineField(rank, f"{_of(rate)} {unit}/s", f"{brief_count_text(rate)} {unit}/s")


class SlowestRole:
    """Finds the training role that makes the fewest batches per second, where roles differ.

    Roles that sum each step keep the same pace, so there is none.
    """

    def __init__(self) -> None:
        self._counts: deque[tuple[float, dict[tuple[str, int], int]]] = deque()

    def update(self, now: float, status: Mapping[str, Any]) -> None:
        """Take the batches of the training roles that run.

        Parameters
        ----------
        now
            Monotonic seconds.
        status
            As :meth:`dask_train.report.progress.RunDisplay.update` takes it.
        """
        roles = [role for role in status["roles"] if role["role"] in status["training"]]
        running = {
            (role["role"], role["rank"]): role["num_batches"] for role in roles if role.get("phase") == "running"
        }
        self._counts.append((now, running))
        while now - self._counts[0][0] > RATE_OVER_S:
            self._counts.popleft()

    def field(self) -> LineField | None:
        """Return its name and rate; None if roles are about as fast as each other, or that is not known yet."""
        if not self._counts:
            return None
        (since, before), (now, after) = self._counts[0], self._counts[-1]
        steps = {key: after[key] - before[key] for key in after.keys() & before.keys()}
        if now - since < 1.0 or not steps or min(steps.values()) < 0:  # one has started again, and counts from 0
            return None
        (role, rank), fewest = min(steps.items(), key=lambda item: (item[1], item[0]))
        most = max(steps.values())
        if most < FEWEST or fewest >= SLOW * most:
            return None
        if max(after.values()) - min(after.values()) <= HEARD_WITHIN_S * most / (now - since):
            return None
        return LineField(7, f"slowest {role} {rank}, {_of(fewest / (now - since))} batches/s", f"slowest {role} {rank}")


def _of(rate: float) -> str:
    return count_text(rate) if rate >= 10 else f"{rate:.1f}"
