"""The training loop of kinds of model that have no epochs: each step, a round, goes over all rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dask_train.data.account import BatchRange
from dask_train.trainers.common.sync_point import Position, SyncedLoop


class RoundLoop(SyncedLoop):
    """The training loop of one rank whose library goes over the rows by itself: an epoch is a round, of one step.

    So a history has one score a round, and an outcome the numbers of rounds as epochs. Unlike epochs, rounds are too
    short for a checkpoint after each: one is taken when it is due, and after the last round.

    Parameters
    ----------
    task, session, agreement, check
        As of :class:`~dask_train.trainers.common.sync_point.SyncedLoop`; the task's epochs and batches mean nothing.

    Attributes
    ----------
    unit
        What a round is called where it is reported.

    Examples
    --------
    >>> for number in loop.rounds(100):
    ...     booster.update(number)
    ...     loop.round_done(loss=booster.loss())
    >>> loop.rounds_done()
    """

    unit = "round"

    @property
    def num_steps(self) -> int:
        """One: a round is an epoch of its own."""
        return 1

    def rounds(self, stop: int) -> Iterator[int]:
        """Give the number of each round that is left, from 0 up to ``stop``; ends early where the run is to stop."""
        while self.position.epoch < stop and not self.stopped:
            yield self.position.epoch

    def round_done(self, /, **scores: Any) -> bool:
        """Pass the sync point after a round: history, report, a checkpoint where one is due.

        Parameters
        ----------
        **scores
            Of the round; those of the first rank.

        Returns
        -------
        bool
            Whether training ends here, for all ranks.
        """
        done = self.position.epoch + 1
        self.position = Position(done, 0, done)
        self._at_border()
        return self._end_round(scores)

    def _end_round(self, scores: dict[str, Any]) -> bool:
        done = self.position.epoch
        self._note(done - 1, scores)
        self._report(self.unit, done, scores)
        return self._pass_sync_point(epoch_ends=False)

    def rounds_done(self) -> None:
        """Take a checkpoint of the last round, whatever has ended the rounds, where the last one has not seen it."""
        if self._task.checkpoint is not None and self.position.steps > self._saved_steps:
            self._save()

    def _taken_by_all(self) -> dict[int, list[BatchRange]]:
        """Name no batches: the session counts the partitions that the library was given."""
        return {}
