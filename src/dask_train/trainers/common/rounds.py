"""The training loop of kinds of model that have no epochs: each step, a round, goes over all rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dask_train.data.account import BatchRange
from dask_train.role.time_spent import CHECKPOINTS
from dask_train.trainers.common.fit_checkpoint import FitCheckpoint
from dask_train.trainers.common.kept_rounds import KeptRounds
from dask_train.trainers.common.rank_state import RankState
from dask_train.trainers.common.sync_point import Position, SyncedLoop


class RoundLoop(SyncedLoop):
    """The training loop of one rank whose library goes over the rows by itself: an epoch is a round, of one step.

    So a history has one score a round, and an outcome the numbers of rounds as epochs. Unlike epochs, rounds are too
    short for a checkpoint after each: one is taken when it is due, and after the last round. Where the session has
    memory of its Dask worker for it, the state is kept there, too: all ranks continue from it when they start again.

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

    _kept: KeptRounds | None = None

    def keep(self, state: RankState) -> Position:
        """See :meth:`SyncedLoop.keep`; the state to resume from may be one that was kept in memory."""
        session = self._session
        if session._state_memory is not None:
            self._kept = KeptRounds(session._state_memory, self._agreement, session.notice)
        start = super().keep(state)
        if self._kept is not None:  # the checkpoint of that round may not have been written
            self._saved_steps = self._agreement.of_first(self._checkpointer.steps)
        return start

    def _last_checkpoint(self) -> FitCheckpoint | None:
        checkpoint = super()._last_checkpoint()
        if self._kept is None:
            return checkpoint
        kept = self._kept.last()
        if not self.leads:
            return None
        found, told = self._later(checkpoint, *(kept or (None, 0)))
        if self._session.attempt:
            self._session.notice(f"All workers have started again, {told}.")
        return found

    def _later(
        self, checkpoint: FitCheckpoint | None, kept: FitCheckpoint | None, saved_steps: int
    ) -> tuple[FitCheckpoint | None, str]:
        """Return a checkpoint, or the state in memory, whichever is later, and in words which it is.

        Parameters
        ----------
        checkpoint, kept
            The checkpoint, and the state in memory; None if there is none.
        saved_steps
            Steps of the last checkpoint that was taken before the state in memory.
        """
        other = "from the beginning" if checkpoint is None else f"from the checkpoint of {self.unit} {checkpoint.steps}"
        if kept is None:
            return checkpoint, f"{other}: no Dask worker of theirs has a state in memory"
        if checkpoint is not None and checkpoint.steps >= kept.steps:
            return checkpoint, other
        policy = self._task.checkpoint
        if policy is not None and policy.best and saved_steps != self._checkpointer.steps:
            return checkpoint, f"{other}: a later one, which may be the best, was not written in time"
        return kept, f"from {self.unit} {kept.steps}, whose state was kept in memory"

    def _pass_sync_point(self, *, epoch_ends: bool) -> bool:
        if self._kept is None:
            return super()._pass_sync_point(epoch_ends=epoch_ends)
        self._agreement.keeps = self.leads and self._kept.due()
        stopped = super()._pass_sync_point(epoch_ends=epoch_ends)
        if self._agreement.keeps:
            with self._session._link.spent.on(CHECKPOINTS):
                self._kept.write(self.position.steps, lambda: (self._checkpoint(), self._saved_steps))
        return stopped

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
