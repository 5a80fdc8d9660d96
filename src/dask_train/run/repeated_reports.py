"""Reports that a role makes again, as it has started again from a checkpoint."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from dask_train.run.stop_rule import EPOCH, number

# Of a scorer: how many steps parameter servers have taken.
UPDATES = "updates"

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
