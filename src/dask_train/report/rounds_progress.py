"""The progress of boosted trees: rounds, and the time left until the last one."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from dask_train.report.fitted import LineField
from dask_train.report.formats import seconds_text
from dask_train.report.progress import RunDisplay
from dask_train.report.rates import RATE_OVER_S


class RoundsDisplay(RunDisplay):
    """As :class:`~dask_train.report.progress.RunDisplay`, for a run that adds trees round by round.

    Parameters
    ----------
    progress
        Show it.
    rounds
        The number of rounds at the end, if nothing stops the run before.
    """

    _place = RunDisplay._place | {"round"}

    def __init__(self, progress: bool | None = None, *, rounds: int, **settings: Any) -> None:
        super().__init__(progress, **settings)
        self._rounds = rounds
        self._done: deque[tuple[float, int]] = deque()

    def update(self, status: Mapping[str, Any]) -> None:
        """See :meth:`RunDisplay.update`."""
        scores = [score for _, _, score in status.get("last_scores", ()) if "round" in score]
        if scores and (not self._done or self._done[-1][1] != scores[0]["round"]):
            latest = scores[0]
            if self._done and latest["round"] < self._done[-1][1]:  # it has started again, from a checkpoint
                self._done.clear()
            self._done.append((latest["time"], latest["round"]))
            while len(self._done) > 2 and latest["time"] - self._done[0][0] > RATE_OVER_S:
                self._done.popleft()
        super().update(status)

    def _score_fields(self) -> list[LineField]:
        """Return rounds and the time left, then scores."""
        if not self._done:
            return super()._score_fields()
        done = self._done[-1][1]
        # A model that is trained further, or a name of the library's own for their number, has more.
        known = done <= self._rounds
        round_text = f"round {done}/{self._rounds}" if known else f"round {done}"
        fields = [LineField(1, round_text, round_text)]
        if known and (left_s := self._left_s()) and not self._is_over():
            fields.append(LineField(3, f"{seconds_text(left_s)} left", f"{left_s:.0f} s left"))
        return fields + super()._score_fields()

    def _share_done(self) -> float | None:
        return min(1.0, self._done[-1][1] / self._rounds) if self._done and self._rounds else None

    def _left_s(self) -> float | None:
        """Return the seconds until the last round at the speed of the last seconds; None if unknown."""
        (since, first), (now, done) = (self._done[0], self._done[-1]) if self._done else ((0.0, 0), (0.0, 0))
        if done <= first or now <= since:
            return None
        return max(0, self._rounds - done) * (now - since) / (done - first)
