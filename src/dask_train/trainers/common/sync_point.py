"""The sync point between two training steps, and the state that is saved and restored there."""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from dask_train.collectives.formation import State
from dask_train.data.account import BatchRange
from dask_train.errors import CheckpointError
from dask_train.role.session import Session
from dask_train.trainers.common.agreement import Agreement
from dask_train.trainers.common.checkpointer import Checkpointer
from dask_train.trainers.common.comparing import check_same
from dask_train.trainers.common.epoch_rules import EpochRules
from dask_train.trainers.common.epochs import Epochs
from dask_train.trainers.common.fit_checkpoint import FitCheckpoint
from dask_train.trainers.common.in_place import Borders, OwnState
from dask_train.trainers.common.outcome import Outcome, Read
from dask_train.trainers.common.rank_state import RankState
from dask_train.trainers.common.score_names import check_stop_numbers, check_stop_told, scores_of
from dask_train.trainers.common.task import LoopTask


def mode_unknown(_: Any, name: str) -> NoReturn:
    """Fail: the checkpoint policy has to say whether less or more of a score is better."""
    raise AssertionError(f"whether less or more of {name} is better is known before training begins")


@dataclass(frozen=True)
class Position:
    """Progress of training.

    Attributes
    ----------
    epoch, batch
        Epoch and batch of the next step, counted from 0.
    steps
        Number of steps so far, including those before training was resumed.
    """

    epoch: int = 0
    batch: int = 0
    steps: int = 0


class LeftError(Exception):
    """This rank is not among those that continue, and ends in order."""


class SyncedLoop(ABC):
    """Base of the training loop of one rank: the work between two steps, whatever a step is.

    All ranks make the same calls. At a sync point the first rank reports scores, decides whether a checkpoint is due
    and whether the run is to stop, and tells the others in one all-reduce; so all of them save, and end, after the
    same step.

    Parameters
    ----------
    task
        How long to train, and when to keep a checkpoint.
    session
        Session of the role.
    agreement
        Collectives with the other ranks.
    epochs
        Epochs of batches. Default: none, as every step uses all rows.
    check
        Called with the configuration in a checkpoint of another run and the one of this run; raises if training
        can't resume from that checkpoint.
    mode_of
        As in :class:`~dask_train.trainers.common.checkpointer.Checkpointer`. Default: the policy has to name a mode.

    Attributes
    ----------
    position
        Progress of training.
    start
        Position at which this run began: 0, or that of the checkpoint it resumed from.
    stopped
        Whether training is to end before its last step.
    history
        Score name -> one score per epoch, or per unit that a model has in place of epochs; in the first rank.
    watched_score
        The score by which an observer takes the model of an epoch, see :meth:`is_as_scored`; None without one.
    """

    watched_score: str | None = None

    def __init__(
        self,
        task: LoopTask,
        session: Session,
        agreement: Agreement,
        epochs: Epochs | None = None,
        *,
        check: Callable[[dict[str, Any], dict[str, Any]], None] = check_same,
        mode_of: Callable[[Any, str], str] = mode_unknown,
    ) -> None:
        self._task, self._session, self._agreement, self._check = task, session, agreement, check
        self.leads = agreement.rank == 0
        self._checkpointer = Checkpointer(task, session, epochs, mode_of)
        self._configuration = task.configuration
        self._state = RankState()
        self.start = self.position = Position(task.initial_epoch)
        self.stopped = False
        self._rules, self._stop_reason = EpochRules(task.epoch_rules), ""
        self.history: dict[str, list[Any]] = {}
        self._reported_epochs: list[int] = []
        self._read: list[Read] = []
        self._saved_steps = 0
        self._borders: Borders | None = None
        self._behind_step = False  # whether this rank begins between a step and its sync point
        self._is_joining = False  # whether it begins where the number of ranks has changed, until its first step

    @property
    @abstractmethod
    def num_steps(self) -> int:
        """Number of steps per epoch."""

    @abstractmethod
    def _taken_by_all(self) -> dict[int, list[BatchRange]]:
        """Return the batches that each rank has taken since :attr:`start`."""

    def keep(self, state: RankState) -> Position:
        """Register the state to mirror, save and restore; resume from the last checkpoint, if there is one.

        Called once, before the first batch. The functions of the state may be called at once.

        Parameters
        ----------
        state
            State of this rank, with parts of the same names in every rank.

        Returns
        -------
        Position
            :attr:`start`.

        Raises
        ------
        CheckpointError
            The checkpoint is of another configuration, can't be read, or was written by another version.
        """
        self._state = state
        if (group := self._agreement.replaceable) is not None:
            self._borders = Borders(group, state)
            if group.received is not None:
                self._take_place(group.received)
                if not self._behind_step:
                    group.confirm()  # as below
                return self.start
        checkpoint = self._last_checkpoint()
        resume_point = None
        if checkpoint is not None:
            checkpoint.check_parts(state.names)
            self._check_size(checkpoint)
            self._take_over(checkpoint)
            self._stop_reason = "" if checkpoint.batch else self._rules.met(self.history, self._reported_epochs)
            self.stopped = bool(self._stop_reason) or self._has_ended(checkpoint)
            position = (checkpoint.epoch, checkpoint.batch, checkpoint.steps)
            resume_point = (*position, checkpoint.shared, checkpoint.own, self._stop_reason, self.stopped)
        agreed = self._agreement.of_first(resume_point)
        if agreed is not None:
            epoch, batch, steps, shared, own, self._stop_reason, self.stopped = agreed
            self.start = self.position = Position(epoch, batch, steps)
            self._saved_steps = steps
            state.restore_shared(shared, within_epoch=batch > 0)
            rank, size = self._agreement.rank, self._agreement.size
            mine = own[rank] if len(own) == size else state.regroup_own(own, rank)
            state.restore_own(mine, within_epoch=batch > 0)
        if group is not None:
            self._at_border()
            group.confirm()  # all ranks have mirrored their state
        return self.start

    def _last_checkpoint(self) -> FitCheckpoint | None:
        """Return the checkpoint to resume from, in the first rank; None if there is none."""
        return self._checkpointer.load(self._check_begun) if self.leads else None

    @property
    def takes_place(self) -> bool:
        """Return whether this rank replaces a lost one."""
        group = self._agreement.replaceable
        return group is not None and group.received is not None

    @property
    def is_behind_step(self) -> bool:
        """Return whether this rank begins between a step of the lost rank and the sync point of that step."""
        return self._behind_step

    @property
    def begins_later(self) -> bool:
        """Return whether the others trained before this rank began; false from its first step on."""
        return self._behind_step or self._is_joining

    @property
    def begins_within_epoch(self) -> bool:
        """Return whether this rank begins within an epoch of the others; false from its first step on."""
        return self._behind_step or (self._is_joining and self.position.batch > 0)

    def mirror_step(self) -> None:
        """Mirror this rank's own state after the current step, before the last all-reduce of the step.

        Needed only where a lost rank is replaced in place. The rank's own state must not change from here to
        :meth:`TrainingLoop.step_done`.
        """
        if self._borders is not None:
            self._borders.mirror(self._border + 1, self._led())

    def _at_border(self) -> None:
        """Record that this rank is between two steps, before the sync point: its replacement would begin here."""
        if self._borders is not None:
            self._borders.reached(self._border, self._led(), self._alike())

    @property
    def _border(self) -> int:
        """Number of the last border between two steps."""
        return self.position.steps

    def _alike(self) -> dict[str, Any]:
        """Return the loop state that is equal on all ranks."""
        alike = {"position": self.position, "start": self.start, "saved_steps": self._saved_steps}
        return {**alike, "agreed": self._agreement.state()}

    def _led(self) -> dict[str, Any] | None:
        """Return copies of the loop state that only the first rank has; None in the others."""
        if not self.leads:
            return None
        known = {"history": self._copied_history(), "epochs": list(self._reported_epochs), "read": list(self._read)}
        return {**known, "checkpoint_steps": self._checkpointer.steps}

    def _take_place(self, received: State) -> None:
        """Continue in place of a lost rank, at the border where the other ranks wait."""
        task = self._task
        if self.leads and (task.stop_names or (task.checkpoint is not None and task.checkpoint.best)):
            self.start_all_again("worker 0 was lost, which knew the best checkpoint or a score to stop by")
        shared, alike = received.shared
        self.position, self.start, self._saved_steps = alike["position"], alike["start"], alike["saved_steps"]
        self._state.restore_some(shared)
        if received.own is not None:
            own: OwnState = pickle.loads(received.own)  # noqa: S301 - of a worker of this run
            if own.led is not None:
                parts, led = own.led
                self._state.restore_some(parts)
                self.history, self._reported_epochs, self._read = led["history"], led["epochs"], led["read"]
                self._checkpointer.steps = led["checkpoint_steps"]
            self._state.restore_mirrored(pickle.loads(own.parts))  # noqa: S301 - as above
        self._is_joining = bool(alike.get("is_passed"))
        self._behind_step = self.position.steps > self.start.steps and not self._is_joining
        self._agreement.restore(alike["agreed"])
        assert self._borders is not None
        if received.own is None:  # it joins; calls of its first step change some of what the others have alike
            self._borders.settle(received.border, self._led())
        self._borders.begin(received.border, alike, is_proven=self._behind_step)

    def start_all_again(self, why: str) -> NoReturn:
        """Restart all ranks from the last checkpoint, as this rank can't replace the lost one."""
        self._session._link.start_all_again(why)

    def take_model(self) -> dict[str, Any]:
        """Return the shared parts of the state, by name, for a model to load; in the first rank."""
        return self._state.take_shared(within_epoch=False)

    def settle(self) -> None:
        """Wait for a checkpoint that is being written, however training has ended."""
        with suppress(CheckpointError):  # the run ends with another error, or has seen this one
            self._checkpointer.finish()
        self._let_go()

    def outcome(self, trained: Callable[[], dict[str, Any]] | None = None) -> Outcome | None:
        """End training, with the best checkpoint's state if ``restore_best`` was set; return the role's result.

        Parameters
        ----------
        trained
            Return the parts of the trained model that the client needs, by name. Default: the shared parts of the
            state.

        Returns
        -------
        Outcome or None
            None in all ranks but the first.
        """
        if not self.leads:
            self._let_go()
            return None
        self._checkpointer.finish()
        best = self._checkpointer.best()
        if best is not None:
            self._state.restore_trained(best.shared)
        header = trained() if trained is not None else self.take_model()
        self._let_go()
        applied = self._taken_by_all()
        for run, _, before in self._read:
            if run == self._task.run:  # an earlier attempt, whose workers may have gone before they sent their accounts
                ranks = sorted({*before, *applied})
                applied = {rank: [*before.get(rank, []), *applied.get(rank, [])] for rank in ranks}
        return Outcome(
            header=header,
            history=self._copied_history(),
            epoch=self._reported_epochs,
            steps=self.position.steps,
            read=[read for read in self._read if read[0] != self._task.run],
            num_rows=self._session.num_rows,
            warnings=[warning for warning in (self._warning(), self._checkpointer.warning) if warning],
            num_steps=self.num_steps,
            best_epoch=None if best is None else best.epoch - 1,
            stop_reason=self._stop_reason,
            all_reduce_s=self._agreement.all_reduce_s,
            waiting_s=self._agreement.waiting_s,
            applied=applied,
        )

    def _check_begun(self, checkpoint: FitCheckpoint) -> None:
        """Check that a checkpoint of another run has this run's configuration."""
        if checkpoint.run != self._task.run:
            self._check(checkpoint.configuration, self._configuration)

    def _take_over(self, checkpoint: FitCheckpoint) -> None:
        """Continue the history of a checkpoint; in the first rank."""
        self.history, self._reported_epochs, self._read = checkpoint.history, checkpoint.epochs, checkpoint.read

    def _has_ended(self, checkpoint: FitCheckpoint) -> bool:  # noqa: ARG002 - only Keras' callbacks end training
        """Return whether training was over at a checkpoint, and ends again in this call; in the first rank."""
        return False

    def _note(self, epoch: int, scores: dict[str, Any]) -> None:
        """Append the scores of an epoch to the history; scalars of NumPy as numbers of Python, which all can draw."""
        if self.leads:
            self._reported_epochs.append(epoch)
            for name, value in scores.items():
                self.history.setdefault(name, []).append(value.item() if isinstance(value, np.generic) else value)

    def _copied_history(self) -> dict[str, list[Any]]:
        """Return a copy of the history, for a checkpoint or the result."""
        return {name: list(values) for name, values in self.history.items()}

    def is_as_scored(self) -> bool:
        """Return whether the last scores are those of the current state, so that it may be the best one."""
        return True

    def _note_saved(self) -> None:  # noqa: B027 - not all have something to do
        """Note that a checkpoint has the last scores, and none that follows within the epoch has."""

    def _check_size(self, checkpoint: FitCheckpoint) -> None:
        """Check that the checkpoint is of as many ranks, if each rank has to restore a part of its own.

        Raises
        ------
        CheckpointError
            It is of another number of ranks.
        """
        bound, size = self._state.bound_to_ranks(within_epoch=checkpoint.batch > 0), self._agreement.size
        if bound and len(checkpoint.own) != size:
            raise CheckpointError(
                f"The checkpoint was made by {len(checkpoint.own)} workers, and this run has {size}: each of them "
                f"continues with what only that worker has ({', '.join(bound)}).",
                change=f"Pass workers={len(checkpoint.own)}, or checkpoint= another folder to begin anew.",
            )

    def _let_go(self) -> None:
        """Break the reference cycle with the worker, which would keep rows in memory of the user's process."""
        self._state, self._borders = RankState(), None

    def _warning(self) -> str | None:
        """Return a warning for the user, besides those about checkpoints; None if there is none."""
        return None

    def _report(self, unit: str, number: int, scores: dict[str, Any], **more: int) -> None:
        """Report the scores of an epoch, or of the unit that a kind of model has in place of epochs."""
        if self.leads:
            self._session.report(**{unit: number}, **more, **scores_of(scores))
            awaited = self._task.stop_names | self._rules.names
            check_stop_told(awaited, self.history, unit)
            check_stop_numbers(awaited, self.history)
            self._checkpointer.scored(None, scores)
            self._stop_reason = self._rules.met(self.history, self._reported_epochs)

    def _pass_sync_point(self, *, epoch_ends: bool) -> bool:
        """Agree with the other ranks whether to save, stop or resize, and do so."""
        save = stop = False
        if self.leads:
            save = self._checkpointer.due(self.position.steps, epoch_ends=epoch_ends)
            stop = self._session.should_stop() or bool(self._stop_reason)
            self._agreement.resizes = self._wants_other_size()
        save, self.stopped = self._agreement.flags(save, stop)
        if save or (self.stopped and not epoch_ends and self._task.checkpoint is not None):
            self._save()
        if self._agreement.resizes and not self.stopped:
            self._resize()
        return self.stopped

    def _wants_other_size(self) -> bool:
        """Return whether the number of ranks is to change at this sync point; in the first rank."""
        return False

    def _resize(self) -> None:
        """Continue with another number of ranks."""
        raise AssertionError("only loops over batches have other ranks join")

    def _save(self) -> None:
        """Save a checkpoint: the first rank gathers the own state of all ranks, and writes."""
        self._saved_steps = self.position.steps
        checkpoint = self._checkpoint()
        if checkpoint is not None:
            self._checkpointer.keep(checkpoint, as_scored=self.is_as_scored())
            self._note_saved()

    def _checkpoint(self) -> FitCheckpoint | None:
        """Return a checkpoint of this moment in the first rank, None in the others; all ranks call it."""
        own = self._agreement.of_all(self._state.take_own()) if self._state.has_own else []
        if not self.leads:
            return None
        return FitCheckpoint(
            run=self._task.run,
            order=self._checkpointer.data_order(),
            configuration=self._configuration,
            epoch=self.position.epoch,
            batch=self.position.batch,
            steps=self.position.steps,
            shared=self._state.take_shared(),
            own=own,
            history=self._copied_history(),
            epochs=list(self._reported_epochs),
            read=[*self._read, (self._task.run, self._agreement.size, self._taken_by_all())],
            judged_by=self._checkpointer.judged_by,
        )
