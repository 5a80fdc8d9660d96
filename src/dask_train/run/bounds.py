"""A number of workers that follows the Dask workers, between two bounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

# Fewer workers are not resized: one worker computes its steps in another way than several. With parameter servers each
# computes its own in any case.
LEAST, LEAST_WITH_SERVERS = 2, 1


class WorkerBounds(NamedTuple):
    """The least and the largest number of workers, as of ``workers=(2, 8)``."""

    low: int
    high: int

    @classmethod
    def of(cls, workers: Sequence[Any], least: int = LEAST) -> WorkerBounds:
        """Return the bounds that a user has passed, of which none may be below ``least``.

        Raises
        ------
        ValueError
            They are none.
        """
        what = f"workers is {workers!r}"
        is_whole = all(isinstance(each, int) and not isinstance(each, bool) for each in workers)
        if len(workers) != len(cls._fields) or not is_whole:
            raise ValueError(f"{what}; pass a whole number, or two of them, the least and the largest: workers=(2, 8).")
        bounds = cls(*workers)
        if bounds.low < least == LEAST_WITH_SERVERS:
            raise ValueError(f"{what}, and a run has at least one worker. Pass workers=(1, {max(bounds.high, 2)}).")
        if bounds.low < least:
            raise ValueError(
                f"{what}: a run whose number of workers changes has at least {LEAST}. A single worker sums with nobody "
                f"and computes its steps in another way, so none can join it. {_change(bounds.high)}"
            )
        if bounds.low > bounds.high:
            raise ValueError(f"{what}, and the least comes first. Pass workers=({bounds.high}, {bounds.low}).")
        return bounds

    def nearest(self, count: int) -> int:
        """Return the number within the bounds that is nearest to ``count``."""
        return min(self.high, max(self.low, count))


def _change(high: int) -> str:
    """Return what to pass in place of bounds whose lower one is too low."""
    if high > LEAST:
        return f"Pass workers=({LEAST}, {high})."
    number = max(high, 1)
    return f"Pass workers={number} for a number that stays, or a larger range, such as workers=({LEAST}, 4)."
