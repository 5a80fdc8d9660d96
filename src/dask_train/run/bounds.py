"""A number of workers that follows the Dask workers of the run's host, between two bounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

# Fewer workers are not resized: one worker computes its steps in another way than several.
LEAST = 2


class WorkerBounds(NamedTuple):
    """The least and the largest number of workers, as of ``workers=(2, 8)``."""

    low: int
    high: int

    @classmethod
    def of(cls, given: Sequence[Any]) -> WorkerBounds:
        """Return the bounds that a user has passed.

        Raises
        ------
        ValueError
            They are none.
        """
        what = f"workers is {given!r}"
        is_whole = all(isinstance(each, int) and not isinstance(each, bool) for each in given)
        if len(given) != len(cls._fields) or not is_whole:
            raise ValueError(f"{what}; pass a whole number, or two of them, the least and the largest: workers=(2, 8).")
        bounds = cls(*given)
        if bounds.low < LEAST:
            raise ValueError(
                f"{what}: a run whose number of workers changes has at least {LEAST}, as a single worker computes its "
                f"steps without a group. Pass workers=({LEAST}, {max(bounds.high, LEAST)})."
            )
        if bounds.low > bounds.high:
            raise ValueError(f"{what}, and the least comes first. Pass workers=({bounds.high}, {bounds.low}).")
        return bounds

    def nearest(self, count: int) -> int:
        """Return the number within the bounds that is nearest to ``count``."""
        return min(self.high, max(self.low, count))
