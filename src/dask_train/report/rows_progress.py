"""The progress of a run whose training roles go through all rows once: how many are done, how fast, time left."""

from __future__ import annotations

from typing import Any

from dask_train.report.fitted import LineField
from dask_train.report.formats import brief_count_text, count_text, seconds_text
from dask_train.report.progress import RunDisplay
from dask_train.report.rates import rate_field


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
