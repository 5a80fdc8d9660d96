"""The sync point between two steps of whatever is trained, and the state that is kept there and restored."""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NoReturn

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
from dask_train.trainers.common.score_names import check_stop_told, scores_of
from dask_train.trainers.common.task import LoopTask


def mode_unknown(_: Any, name: str) -> NoReturn:
    """Fail: the policy for checkpoints has to say whether less or more of a score is better."""
    raise AssertionError(f"whether less or more of {name} is better is known before training begins")


@dataclass(frozen=True)
class Position:
    """How far training is.

    Attributes
    ----------
    epoch, batch
        The next batch, each counted from 0.
    steps
        How many have been taken in all, also before training was resumed.
    """

    epoch: int = 0
    batch: int = 0
    steps: int = 0


class LeftError(Exception):
    """This rank is not among those that continue, and ends in order."""


class SyncedLoop(ABC):
    """The loop of one rank, as far as it does not matter what a step is: what happens between two of them.

    All ranks make the same calls. At a sync point the first rank reports scores, decides whether a checkpoint is due
    and whether the run is to stop, and tells the others in one sum; so all of them save, and end, after the same step.

    Parameters
    ----------
    task
        How long to train, and when to keep a checkpoint.
    session
        Of the role.
    agreement
        How this rank agrees with the others.
    epochs
        Those of batches. Default: there are none, as every step goes through all rows.
    check
        Called with the configuration in a checkpoint of another run and the one of this run; raises where training
        can't resume from it.
    mode_of
        As of :class:`~dask_train.trainers.common.checkpointer.Checkpointer`. Default: the policy has to say it.

    Attributes
    ----------
    position
        Where training is.
    start
        Where it has begun: after the checkpoint, if there was one to resume from.
    stopped
        Whether training is to end before its last step.
    history
        By name, a list of one score an epoch, or what there is in place of epochs; in the first rank.
    """

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
        self._epochs_told: list[int] = []
        self._read: list[Read] = []
        self._saved_steps = 0
        self._borders: Borders | None = None
        self._behind_step = False  # whether this rank begins behind a step, whose sync point comes next
        self._is_joining = False  # whether it begins where the number of ranks has changed, until its first step

    @property
    @abstractmethod
    def num_steps(self) -> int:
        """Steps of an epoch."""

    @abstractmethod
    def _taken_by_all(self) -> dict[int, list[BatchRange]]:
        """Return the batches that each rank has taken since :attr:`start`."""

    def keep(self, state: RankState) -> Position:
        """Mirror, save and restore this state; resume from the last checkpoint, if there is one.

        Called once, before the first batch; by then the rank has all that the state's functions need.

        Parameters
        ----------
        state
            Parts of the same names in every rank.

        Returns
        -------
        Position
            :attr:`start`.

        Raises
        ------
        CheckpointError
            The checkpoint was begun with something else, can't be read, or was written by an earlier version.
        """
        self._state = state
        if (group := self._agreement.replaceable) is not None:
            self._borders = Borders(group, state)
            if group.received is not None:
                self._take_place(group.received)
                if not self._behind_step:
                    group.confirm()  # as below
                return self.start
        kept = self._checkpointer.load(self._check_begun) if self.leads else None
        if kept is not None:
            kept = self._in_parts(kept)
            kept.check_parts(state.names)
            self._check_size(kept)
            self._take_over(kept)
            self._stop_reason = "" if kept.batch else self._rules.met(self.history, self._epochs_told)
        resume_point = (
            None if kept is None else (kept.epoch, kept.batch, kept.steps, kept.shared, kept.own, self._stop_reason)
        )
        agreed = self._agreement.of_first(resume_point)
        if agreed is not None:
            epoch, batch, steps, shared, own, self._stop_reason = agreed
            self.stopped = bool(self._stop_reason)
            self.start = self.position = Position(epoch, batch, steps)
            self._saved_steps = steps
            state.restore_shared(shared, within_epoch=batch > 0)
            rank, size = self._agreement.rank, self._agreement.size
            mine = own[rank] if len(own) == size else state.regroup_own(own, rank)
            state.restore_own(mine, within_epoch=batch > 0)
        if group is not None:
            self._at_border()
            group.confirm()  # the mirrors of all are whole
        return self.start

    @property
    def takes_place(self) -> bool:
        """Return whether this rank has come in place of a lost one."""
        group = self._agreement.replaceable
        return group is not None and group.received is not None

    @property
    def is_behind_step(self) -> bool:
        """Return whether this rank begins behind a step, taken by the lost one; its sync point comes next."""
        return self._behind_step

    @property
    def begins_later(self) -> bool:
        """Return whether this rank begins where the others have trained already, until its first step."""
        return self._behind_step or self._is_joining

    @property
    def begins_within_epoch(self) -> bool:
        """Return whether this rank begins in an epoch that the others have begun already, until its first step."""
        return self._behind_step or (self._is_joining and self.position.batch > 0)

    def mirror_step(self) -> None:
        """Mirror what is this rank's own after the step in hand, before the last sum of the step.

        Needed where a lost rank is replaced in place alone; from here to :meth:`TrainingLoop.step_done` nothing of the
        rank's own state changes.
        """
        if self._borders is not None:
            self._borders.mirror(self._border + 1, self._led())

    def _at_border(self) -> None:
        """Note that this rank is between two steps, before the sync point: a new one in its place begins here."""
        if self._borders is not None:
            self._borders.reached(self._border, self._led(), self._alike())

    @property
    def _border(self) -> int:
        """The number of the last border."""
        return self.position.steps

    def _alike(self) -> dict[str, Any]:
        """Return what the loops of all ranks have alike."""
        alike = {"position": self.position, "start": self.start, "saved_steps": self._saved_steps}
        return {**alike, "agreed": self._agreement.state()}

    def _led(self) -> dict[str, Any] | None:
        """Return what only the first rank's loop has, of which a part may change later on; None in others."""
        if not self.leads:
            return None
        known = {"history": self._told_history(), "epochs": list(self._epochs_told), "read": list(self._read)}
        return {**known, "checkpoint_steps": self._checkpointer.steps}

    def _take_place(self, received: State) -> None:
        """Continue at the border of the others, in place of a rank that is lost."""
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
                self.history, self._epochs_told, self._read = led["history"], led["epochs"], led["read"]
                self._checkpointer.steps = led["checkpoint_steps"]
            self._state.restore_mirrored(pickle.loads(own.parts))  # noqa: S301 - as above
        self._is_joining = bool(alike.get("is_passed"))
        self._behind_step = self.position.steps > self.start.steps and not self._is_joining
        self._agreement.restore(alike["agreed"])
        assert self._borders is not None
        self._borders.begin(received.border, alike, is_proven=self._behind_step)

    def start_all_again(self, why: str) -> NoReturn:
        """Let all ranks start again, from the last checkpoint, as this one can't take the place of a lost one."""
        self._session._link.start_all_again(why)

    def take_model(self) -> dict[str, Any]:
        """Return what a model takes over, as it is now: shared parts of the state by name; in the first rank."""
        return self._state.take_shared(within_epoch=False)

    def settle(self) -> None:
        """Wait for a checkpoint that is being written, however training has ended."""
        with suppress(CheckpointError):  # the run ends with another error, or has seen this one
            self._checkpointer.finish()
        self._let_go()

    def outcome(self, trained: Callable[[], dict[str, Any]] | None = None) -> Outcome | None:
        """End training, with the best state where that was asked for; what the role returns.

        Parameters
        ----------
        trained
            Returns what travels back of the trained model, by name. Default: the shared parts of the state.

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
            self._state.restore_trained(self._in_parts(best).shared)
        header = trained() if trained is not None else self.take_model()
        self._let_go()
        applied = self._taken_by_all()
        for run, _, before in self._read:
            if run == self._task.run:  # an earlier attempt, whose workers may have taken their accounts with them
                ranks = sorted({*before, *applied})
                applied = {rank: [*before.get(rank, []), *applied.get(rank, [])] for rank in ranks}
        return Outcome(
            header=header,
            history=self._told_history(),
            epoch=self._epochs_told,
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

    def _check_begun(self, kept: FitCheckpoint) -> None:
        """Check that a checkpoint of another run was begun with what this one begins with."""
        if kept.run != self._task.run:
            self._check(kept.configuration, self._configuration)

    def _in_parts(self, kept: FitCheckpoint) -> FitCheckpoint:
        """Return a checkpoint whose state is in parts by name; a kind may know what earlier versions have written."""
        return kept

    def _take_over(self, kept: FitCheckpoint) -> None:
        """Continue the history of a checkpoint; in the first rank."""
        self.history, self._epochs_told, self._read = kept.history, kept.epochs, kept.read

    def _note(self, epoch: int, scores: dict[str, Any]) -> None:
        """Let the history have the scores of an epoch."""
        if self.leads:
            self._epochs_told.append(epoch)
            for name, value in scores.items():
                self.history.setdefault(name, []).append(value)

    def _told_history(self) -> dict[str, list[Any]]:
        """Return a copy of the history, as a checkpoint and the result have it."""
        return {name: list(values) for name, values in self.history.items()}

    def _is_as_scored(self) -> bool:
        """Return whether the state is what the last scores are of, so that a checkpoint of it may be the best one."""
        return True

    def _check_size(self, kept: FitCheckpoint) -> None:
        """Check that there are as many ranks as then, if each resumes from a part of its own.

        Raises
        ------
        CheckpointError
            There are not.
        """
        bound, size = self._state.bound_to_ranks(within_epoch=kept.batch > 0), self._agreement.size
        if bound and len(kept.own) != size:
            raise CheckpointError(
                f"The checkpoint was made by {len(kept.own)} workers, and this run has {size}: each of them continues "
                f"with what only that worker has ({', '.join(bound)}).",
                change=f"Pass workers={len(kept.own)}, or checkpoint= another folder to begin anew.",
            )

    def _let_go(self) -> None:
        """Break the reference cycle with the worker, which would keep rows in the user's process."""
        self._state, self._borders = RankState(), None

    def _warning(self) -> str | None:
        """Return what the user is to be warned of, besides checkpoints."""
        return None

    def _report(self, unit: str, number: int, scores: dict[str, Any], **more: int) -> None:
        """Report the scores of a whole epoch, or of what a kind of model has in place of epochs."""
        if self.leads:
            self._session.report(**{unit: number}, **more, **scores_of(scores))
            awaited = self._task.stop_names | self._rules.names
            check_stop_told(awaited, self.history, unit)
            self._checkpointer.scored(None, scores)
            self._stop_reason = self._rules.met(self.history, self._epochs_told)

    def _pass_sync_point(self, *, epoch_ends: bool) -> bool:
        """Agree with the other ranks on what follows, and take a checkpoint where it is due."""
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
        """Take a checkpoint: all ranks tell what is their own, the first one writes."""
        self._saved_steps = self.position.steps
        own = self._agreement.of_all(self._state.take_own()) if self._state.has_own else []
        if not self.leads:
            return
        kept = FitCheckpoint(
            run=self._task.run,
            order=self._checkpointer.order(),
            configuration=self._configuration,
            epoch=self.position.epoch,
            batch=self.position.batch,
            steps=self.position.steps,
            shared=self._state.take_shared(),
            own=own,
            history=self._told_history(),
            epochs=list(self._epochs_told),
            read=[*self._read, (self._task.run, self._agreement.size, self._taken_by_all())],
        )
        self._checkpointer.keep(kept, as_scored=self._is_as_scored())
