"""What a session does with checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dask_train.checkpoint.folder import CheckpointFolder
from dask_train.checkpoint.manifest import Cover
from dask_train.data.account import WHOLE, BatchRange
from dask_train.frameworks.base import TRAINING_ROLES
from dask_train.input_errors import raises_at_the_call
from dask_train.role.context import Context
from dask_train.role.meeting import Meeting
from dask_train.role.messaging import Messaging
from dask_train.role.time_spent import CHECKPOINTS


class Checkpointing(Messaging):
    """The part of a :class:`~dask_train.role.session.Session` that keeps checkpoints and loads them."""

    attempt: int
    world_rank: int | None
    world_size: int
    scratch: Path
    _context: Context
    _counts: Mapping[str, int]
    _meeting: Meeting
    _alone: bool
    _has_begun: bool  # whether it has looked for the checkpoint to begin with, or has kept one
    _checkpoint: CheckpointFolder | None
    _went_on_with: Sequence[Cover]
    _score: float | None  # of what is kept next
    _reported: set[str]

    @raises_at_the_call
    def save_checkpoint(self, write: Callable[[Path], Any]) -> str:
        """Keep a checkpoint where ``train(checkpoint=...)`` says; to be called by one role only, such as the chief.

        Parameters
        ----------
        write
            Called with an empty local folder, into which it writes files: weights, optimizer state, and
            :attr:`position`, which ``batches(start=...)`` takes to resume. They are copied once, to where they are
            kept. With ``Checkpoint(best=...)`` it has the score that this role has reported last since the one before.

        Returns
        -------
        str
            Where it lies. The last two stay, or as ``Checkpoint`` says; one that a killed role has left half-written is
            never loaded.

        Raises
        ------
        CheckpointError
            It can't be written there.
        ValueError
            The run was given no place for checkpoints.
        """
        self._link.moved("saving a checkpoint")
        folder = self.checkpoints()
        own = (folder.run, self.role, self._context.account.covered())
        score, self._score, self._has_begun = self._score, None, True
        with self._link.spent.on(CHECKPOINTS):
            where = folder.save(write, self.scratch, [*self._went_on_with, own], score=score)
        self._tell_of_unknown_best(folder.best_of)
        self._link.moved("past a checkpoint")
        self._context.account.all_done()  # the batch in hand is in it
        folder.was_kept(self._context.num_batches)
        if self._has_met():
            folder.all_have_begun()
        return where

    def checkpoint_due(self) -> bool:
        """Return whether it is time to call :meth:`save_checkpoint`, as ``train(checkpoint=dt.Checkpoint(...))`` says.

        After ``every_steps`` batches that this role has taken, or ``every_s`` seconds (60 where only a place was
        passed), since the last one or the beginning.

        Returns
        -------
        bool
            Always False for ``Checkpoint(..., every_s=None)`` without ``every_steps``.

        Raises
        ------
        ValueError
            The run was given no place for checkpoints.
        """
        return self.checkpoints().due(self._context.num_batches)

    @raises_at_the_call
    def load_checkpoint(self, *, best: bool = False) -> Path | None:
        """Return the files of the last whole checkpoint, in a local folder of this role; None if there is none yet.

        With ``train(resume=True)`` also one that an earlier run has left in the same place. All training roles begin
        with the same one: before its first batch, a role passes over what others have saved since all were started,
        until its second call or a collective call such as :meth:`barrier`. In a run with neither a chief nor workers it
        passes over only what roles of its own name have saved. A role that was started again alone is given the newest.
        One that is damaged, by the checksums that were stored with it, is passed over for the one before; the run's
        result tells in its ``notices``.

        Parameters
        ----------
        best
            Take the best one instead, by ``Checkpoint(best=...)``: to look at, since training continues from the last
            one. None if none was kept with a score; an error where it is damaged.

        Returns
        -------
        Path, or None
            The folder is gone with the role, or with the next call.

        Raises
        ------
        CheckpointError
            It can't be read, or none is whole.
        ValueError
            The run was given no place for checkpoints, or nothing by which the best one is known.
        """
        self._link.moved("loading a checkpoint")
        if best:
            return self._best_checkpoint()
        is_first, self._has_begun = not self._has_begun, True
        # One that was started again alone catches up with the others.
        begins = self.world_rank is not None and not self._alone and not self._context.num_batches
        return self.open_checkpoint(
            own=not self.checkpoints().resume, begins=begins, apart=begins and is_first and not self._has_met()
        )

    def _has_met(self) -> bool:
        """Return whether this role has waited for the others since it started: none has trained without it."""
        return self.world_size == 1 or self._meeting.has_met or self._context.framework.agrees_every_step(self._counts)

    def open_checkpoint(self, *, own: bool = False, begins: bool = False, apart: bool = False) -> Path | None:
        """Open the last whole checkpoint as :meth:`load_checkpoint` does, of this run alone where ``own``.

        Parameters
        ----------
        own
            Whether those of other runs count for nothing.
        begins
            Whether what others have trained since this role was started counts for nothing.
        apart
            Whether all that others have saved since then counts for nothing.

        Returns
        -------
        Path, or None
            As of :meth:`load_checkpoint`.
        """
        with self._link.spent.on(CHECKPOINTS):
            # A chief and workers train together. Of other roles one may train, and another look at its checkpoints.
            savers = () if self.role in TRAINING_ROLES else (self.role,)
            loaded = self.checkpoints().load(self.scratch, own=own, begins=begins, apart=apart, savers=savers)
        if loaded is None:
            return None
        if loaded.notice:
            self.notice(loaded.notice)
        self._went_on_with = loaded.manifest.covers
        if self._went_on_with:
            self._link.went_on(self._went_on_with)
        if not self._context.account.has_begun:
            self._context.behind = self._passes_behind()
        return loaded.folder

    def _passes_behind(self) -> list[BatchRange]:
        """Return the passes over whole partitions of this run that are in the checkpoint.

        A loop that takes batches of the same data set, too, looks at partitions before: it does so in each attempt.
        """
        roles, this = TRAINING_ROLES if self.role in TRAINING_ROLES else (self.role,), self.checkpoints().run
        covers = [records for run, role, records in self._went_on_with if run == this and role in roles]
        stretches = [BatchRange.of(record) for records in covers for record in records]
        in_batches = {stretch.dataset for stretch in stretches if stretch.batch_size != WHOLE}
        return [stretch for stretch in stretches if stretch.dataset not in in_batches]

    @property
    def checkpoint_location(self) -> str:
        """Return the folder or fsspec URL of ``train(checkpoint=...)``, for tools that write files of their own.

        They go into a folder of their own below it, such as ``f"{session.checkpoint_location}/lightning"``: what
        :meth:`save_checkpoint` keeps lies there as well. Nothing there is removed by the run, or loaded by it.

        Raises
        ------
        ValueError
            The run was given no place for checkpoints.
        """
        return self.checkpoints().url

    def checkpoints(self) -> CheckpointFolder:
        """Return the folder that :meth:`save_checkpoint` writes to.

        Returns
        -------
        CheckpointFolder
            The same one each time.

        Raises
        ------
        ValueError
            The run was given no place for checkpoints.
        """
        if self._checkpoint is None:
            raise ValueError(
                "This run has no place for checkpoints. Pass it: train(..., checkpoint='a folder or URL')."
            )
        return self._checkpoint

    def _note_score(self, scores: dict[str, Any]) -> None:
        """Take what was reported as the score of the checkpoint that is kept next."""
        of = None if self._checkpoint is None else self._checkpoint.best_of
        if of is None:
            return
        self._reported |= set(scores)
        value = scores.get(of)
        if isinstance(value, int | float):
            self._score = float(value)

    def _tell_of_unknown_best(self, of: str | None) -> None:
        if self.attempt or (self._checkpoint is not None and self._checkpoint.resume):
            return  # there may be one of before
        if of is not None and self._reported and of not in self._reported:
            self.notice(
                f"No checkpoint is the best one yet: the best one has the best {of!r}, and {self.role} {self.rank} has "
                f"reported only {', '.join(sorted(self._reported))}."
            )
            self._reported = {of}  # reported once

    def _best_checkpoint(self) -> Path | None:
        folder = self.checkpoints()
        if folder.best_of is None:
            raise ValueError(
                "Nothing says which checkpoint is the best. Pass checkpoint=dt.Checkpoint(..., best='val_loss')."
            )
        loaded = folder.load_best(self.scratch, own=not folder.resume)
        return None if loaded is None else loaded.folder
