"""The progress of what goes through partitions, or rows, once: how many of them are done, how fast, time left."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from dask_train.cards import Card
from dask_train.report.display import Display, facts_of
from dask_train.report.fitted import LineField
from dask_train.report.formats import brief_count_text, count_text, seconds_text
from dask_train.report.progress import RunDisplay
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


class RowsDisplay(RunDisplay):
    """As :class:`~dask_train.report.progress.RunDisplay`, for a run that counts rows.

    Parameters
    ----------
    progress
        Show it.
    rows
        How many there are; None if that is not known before they are computed.
    batch_size
        Rows of a batch, over all roles.
    """

    def __init__(self, progress: bool | None = None, *, rows: int | None, batch_size: int, **settings: Any) -> None:
        self._rows, self._batch_size = rows, batch_size
        super().__init__(progress, **settings)

    def rates(self) -> tuple[float, float, float]:
        """Return zeros: no scores are reported, and fields of its own show rows per second."""
        return 0.0, 0.0, 0.0

    def _score_fields(self) -> list[LineField]:
        """Return rows, rows a second and time left."""
        done, rate = self._done(), self._rows_per_s()
        if self._rows is None:
            fields = [LineField(4, f"{count_text(done)} rows", f"{brief_count_text(done)} rows")]
        else:
            brief = f"{brief_count_text(done)}/{brief_count_text(self._rows)} rows"
            fields = [LineField(4, f"{count_text(done)} of {count_text(self._rows)} rows", brief)]
        if rate:
            fields.append(rate_field(5, rate, "rows"))
            if self._rows is not None and done < self._rows:
                left_s = (self._rows - done) / rate
                fields.append(LineField(2, f"{seconds_text(left_s)} left", f"{left_s:.0f} s left"))
        return fields

    def _share_done(self) -> float | None:
        return self._done() / self._rows if self._rows else None

    def _done(self) -> int:
        """Return rows of the batches that all of the roles have taken by now."""
        training = self._status.get("training", ())
        batches = [role["num_batches"] for role in self._status.get("roles", ()) if role["role"] in training]
        done = min(batches, default=0) * self._batch_size
        return done if self._rows is None else min(done, self._rows)

    def _rows_per_s(self) -> float:
        """Over the last seconds."""
        _, batches, _ = super().rates()
        num_roles = sum(role["role"] in self._status["training"] for role in self._status.get("roles", ()))
        return batches * self._batch_size / num_roles if num_roles else 0.0
