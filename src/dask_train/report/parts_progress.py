"""The progress of what goes through partitions: how many of them and of their rows are done, how fast, time left."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from dask_train.cards import Card
from dask_train.report.display import Display, facts_of
from dask_train.report.fitted import LineField
from dask_train.report.formats import brief_count_text, count_text, seconds_text
from dask_train.report.rates import rate_field


class PartsDisplay(Display):
    """As :class:`~dask_train.report.display.Display`, for work on partitions.

    Parameters
    ----------
    progress
        Show it.
    what
        What is done, such as "evaluating".
    rows
        The number of rows of each partition that is left to do; None if that is not known before they are computed.
    num_there
        How many were done before this began; they say nothing about how fast it goes.
    **settings
        As there.
    """

    def __init__(
        self,
        progress: bool | None = None,
        *,
        what: str,
        rows: Sequence[int] | None = None,
        num_there: int = 0,
        **settings: Any,
    ) -> None:
        self._what, self._rows, self._num_there = what, rows, num_there
        self._num_parts = self._num_done = num_there
        self._rows_done = 0
        super().__init__(progress, **settings)

    def done(self, numbers: Collection[int], num_left: int) -> None:
        """Show which are done since this began, by their numbers among those that were left, and how many were left."""
        self._num_parts = self._num_there + num_left
        self._num_done = self._num_there + len(numbers)
        if self._rows is not None:
            self._rows_done = sum(self._rows[number] for number in numbers)
        self._draw()

    def _fields(self) -> list[LineField]:
        elapsed_s = self._clock() - self._begun
        done = f"{self._num_done:,} of {self._num_parts:,}"
        fields = [LineField(0, self._what, self._what), LineField(1, f"{done} partitions", done.replace(" of ", "/"))]
        fresh = self._num_done - self._num_there
        if self._rows is not None:
            total = sum(self._rows)
            brief = f"{brief_count_text(self._rows_done)}/{brief_count_text(total)} rows"
            fields.append(LineField(4, f"{count_text(self._rows_done)} of {count_text(total)} rows", brief))
        if fresh and elapsed_s > 0:
            unit, count = ("partitions", fresh) if self._rows is None else ("rows", self._rows_done)
            fields.append(rate_field(5, count / elapsed_s, unit))
        if (left_s := self._left_s(elapsed_s, fresh)) is not None:
            fields.append(LineField(2, f"{seconds_text(left_s)} left", f"{left_s:.0f} s left"))
        fields.append(LineField(3, seconds_text(elapsed_s), f"{elapsed_s:.0f} s"))
        return fields

    def _left_s(self, elapsed_s: float, fresh: int) -> float | None:
        """Seconds until all is done, at the speed so far; None if nothing is done yet, or all is."""
        if not fresh or self._num_done == self._num_parts or elapsed_s <= 0:
            return None
        if self._rows is not None and self._rows_done:
            return (sum(self._rows) - self._rows_done) * elapsed_s / self._rows_done
        return (self._num_parts - self._num_done) * elapsed_s / fresh

    def _card(self) -> Card:
        done = self._num_done / self._num_parts if self._num_parts else None
        return Card(kind="", name=self._what, facts=facts_of(self._fields()), done=done)
