"""The best epoch of a trial, in the process that trains it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dask_train.checkpoint.best import is_better
from dask_train.searching.worker import TrialDone, TrialRequest


class BestEpoch:
    """The best epoch of a trial so far, and its model where it has to be kept.

    Parameters
    ----------
    request
        Says what is better, and which value the model of an epoch has to beat.

    Attributes
    ----------
    value, epoch
        The best score of an epoch, and the first epoch that had it; None before any.
    parts
        What was trained of the model by then; None if its value does not beat that of other trials.
    """

    def __init__(self, request: TrialRequest) -> None:
        self._request = request
        self.value: float | None = None
        self.epoch: int | None = None
        self.parts: Any = None

    @property
    def beats_others(self) -> bool:
        """Return whether the best score is better than that of trials before."""
        return self.value is not None and is_better(self.value, self._request.to_beat, mode=self._request.mode)

    def would_be(self, value: float) -> bool:
        """Return whether an epoch with that score would be the best one so far."""
        return is_better(value, self.value, mode=self._request.mode)

    def epoch_ended(self, epoch: int, value: float, parts_of: Callable[[], Any]) -> None:
        """Look at the score of an epoch that has just ended; ``parts_of`` returns what is trained, as it is now."""
        if not self.would_be(value):
            return
        self.value, self.epoch = value, epoch
        if self.beats_others:
            self.parts = parts_of()

    def go_on(self, scores: dict[int, float], parts: Any) -> None:
        """Take over the scores of epochs by number, of an earlier start, and the parts of the best of them."""
        for epoch, value in scores.items():
            if self.would_be(value):
                self.value, self.epoch = value, epoch
        if parts is not None and self.beats_others:
            self.parts = parts

    def done(self, seconds: float, warnings: list[str]) -> TrialDone:
        """Return what the client is sent of the trial, which has ended after that many seconds."""
        return TrialDone(
            number=self._request.number,
            value=self.value,
            epoch=self.epoch,
            parts=self.parts,
            seconds=seconds,
            warnings=warnings,
        )
