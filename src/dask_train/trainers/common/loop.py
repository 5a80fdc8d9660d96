"""The training loop of a rank, whatever is trained: where it is, and what happens between two steps."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any, NoReturn

from dask_train.data.account import BatchRange
from dask_train.errors import CheckpointError
from dask_train.role.session import Session
from dask_train.trainers.common.agreement import Agreement
from dask_train.trainers.common.checkpointing import Checkpointer
from dask_train.trainers.common.comparing import check_same
from dask_train.trainers.common.epochs import Epochs
from dask_train.trainers.common.fit_checkpoint import FitCheckpoint
from dask_train.trainers.common.outcome import Outcome, Read
from dask_train.trainers.common.rank_state import RankState
from dask_train.trainers.common.score_names import check_stop_told, scores_of
from dask_train.trainers.common.task import LoopTask

# How often scores are reported between the ends of epochs.
REPORT_INTERVAL_S = 0.5


def _mode_unknown(_: Any, name: str) -> NoReturn:
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


class TrainingLoop:
    """The training loop of one rank: its batches from where training begins, and the sync point after each step.

    All ranks make the same calls. At a sync point the first rank reports scores, decides whether a checkpoint is due
    and whether the run is to stop, and tells the others in one sum; so all of them save, and end, after the same step.

    Parameters
    ----------
    task
        How long to train, on which batches, and when to keep a checkpoint.
    session
        Of the role.
    agreement
        How this rank agrees with the others.
    check
        Called with the configuration in a checkpoint of another run and the one of this run; raises where training
        can't go on with it.
    mode_of
        As of :class:`~dask_train.trainers.common.checkpointing.Checkpointer`. Default: the policy has to say it.
    steps_per_execution
        How many steps a framework takes in one call, as in Keras. Default: 1.

    Attributes
    ----------
    position
        Where training is.
    start
        Where it has begun: behind the checkpoint, if there was one to go on with.
    stopped
        Whether training is to end before its last epoch.
    history
        By name, a list of one score an epoch; in the first rank.
    """

    def __init__(
        self,
        task: LoopTask,
        session: Session,
        agreement: Agreement,
        *,
        check: Callable[[dict[str, Any], dict[str, Any]], None] = check_same,
        mode_of: Callable[[Any, str], str] = _mode_unknown,
        steps_per_execution: int = 1,
    ) -> None:
        self._task, self._session, self._agreement, self._check = task, session, agreement, check
        self.leads = agreement.rank == 0
        self._epochs = Epochs.of(task, session.num_rows, steps_per_execution)
        self._checkpointer = Checkpointer(task, session, self._epochs, mode_of)
        self._configuration = task.configuration
        self._state = RankState()
        self._turns: Iterator[Any] = iter(())
        self.start = self.position = Position(task.initial_epoch)
        self.stopped = self._is_told = False
        self.history: dict[str, list[Any]] = {}
        self._epochs_told: list[int] = []
        self._read: list[Read] = []
        self._saved_steps = 0
        self._reported_s = time.monotonic()

    def keep(self, state: RankState) -> Position:
        """Mirror, save and restore this state; resume from the last checkpoint, if there is one to go on with.

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
        kept = self._checkpointer.load(self._check_begun) if self.leads else None
        if kept is not None:
            kept = self._in_parts(kept)
            kept.check_parts(state.names)
            self._check_size(kept)
            self._take_over(kept)
        told = None if kept is None else (kept.epoch, kept.batch, kept.steps, kept.header, kept.own)
        agreed = self._agreement.of_first(told)
        if agreed is not None:
            epoch, batch, steps, shared, own = agreed
            self.start = self.position = Position(epoch, batch, steps)
            self._saved_steps = steps
            state.restore_shared(shared, within_epoch=batch > 0)
            rank, size = self._agreement.rank, self._agreement.size
            mine = own[rank] if len(own) == size else state.regroup_own(own, rank)
            state.restore_own(mine, within_epoch=batch > 0)
        return self.start

    @property
    def num_steps(self) -> int:
        """Steps of an epoch."""
        return self._epochs.num_steps

    @property
    def ends_epoch(self) -> bool:
        """Whether the step that was taken last is the last one of its epoch."""
        return self.position.batch == self._epochs.size(self.position.epoch)

    @property
    def report_due(self) -> bool:
        """Whether it is time to report scores between two steps; in the first rank. Others need none."""
        return self.leads and time.monotonic() - self._reported_s >= REPORT_INTERVAL_S

    def epochs(self) -> Iterator[int]:
        """Give the number of each epoch that is left; ends early where the run is to stop.

        Every epoch ends with a call of :meth:`epoch_done`.
        """
        with closing(self._epochs.batches(self._session, self._task, self._place)) as turns:
            self._turns = turns
            while self.position.epoch < self._task.epochs and not self.stopped:
                yield self.position.epoch
                assert self._is_told, "epoch_done() is called after each epoch"
                self._is_told = False

    def batches(self) -> Iterator[Any]:
        """Give this rank's share of each batch that is left of the epoch; ends early where the run is to stop.

        Every batch ends with a call of :meth:`step_done`.
        """
        while not (self.stopped or self.ends_epoch):
            steps = self.position.steps
            yield next(self._turns)
            assert self.position.steps == steps + 1, "step_done() is called once after each batch"

    def step_done(self, /, **scores: Any) -> bool:
        """Pass the sync point after a step; the last one of an epoch is passed with :meth:`epoch_done`.

        Parameters
        ----------
        **scores
            To report; those of the first rank, where :attr:`report_due`.

        Returns
        -------
        bool
            Whether training ends here, for all ranks.
        """
        self.count_step()
        return False if self.ends_epoch else self.steps_done(**scores)

    def count_step(self) -> None:
        """Count a step, where the framework takes several of them before the next sync point."""
        self.position = Position(self.position.epoch, self.position.batch + 1, self.position.steps + 1)

    def steps_done(self, /, **scores: Any) -> bool:
        """Pass the sync point after steps that were counted, but for the end of an epoch; see :meth:`step_done`."""
        if scores and self.report_due:
            self._reported_s = time.monotonic()
            step = min(self.position.batch, self.num_steps)  # the last call may take more than there are to be
            self._session.report(epoch=self.position.epoch, step=step, num_steps=self.num_steps, **scores_of(scores))
        return self._pass_sync_point(epoch_ends=False)

    def epoch_done(self, /, **scores: Any) -> bool:
        """Pass the sync point after an epoch: history, report, the best score, a checkpoint.

        Where the run has stopped within the epoch the scores are those of some of its rows: the history has them, and
        nothing else is done.

        Parameters
        ----------
        **scores
            Of the epoch; those of the first rank.

        Returns
        -------
        bool
            Whether training ends here, for all ranks.
        """
        epoch, self._is_told = self.position.epoch, True
        self._note(epoch, scores)
        if self.stopped:
            return True
        self.position = Position(epoch + 1, 0, self.position.steps)
        self._report("epoch", epoch, scores, num_steps=self.num_steps)
        return self._pass_sync_point(epoch_ends=True)

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
            self._state.restore_trained(self._in_parts(best).header)
        header = trained() if trained is not None else self._state.take_shared(within_epoch=False)
        self._let_go()
        applied = self._taken_by_all()
        for run, _, before in self._read:
            if run == self._task.run:  # an earlier attempt, whose workers may have taken their accounts with them
                applied = {rank: [*before.get(rank, []), *taken] for rank, taken in applied.items()}
        return Outcome(
            header=header,
            history=self._told_history(),
            epoch=self._epochs_told,
            steps=self.position.steps,
            read=[read for read in self._read if read[0] != self._task.run],
            num_rows=self._session.num_rows,
            warnings=[warning for warning in (self._epochs.warning(), self._checkpointer.warning) if warning],
            num_steps=self.num_steps,
            best_epoch=None if best is None else best.epoch - 1,
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
        """Go on with the history of a checkpoint; in the first rank."""
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
        """Check that there are as many ranks as then, where each goes on with a part of its own.

        Raises
        ------
        CheckpointError
            There are not.
        """
        bound, size = self._state.bound_to_ranks(within_epoch=kept.batch > 0), self._agreement.size
        if bound and len(kept.own) != size:
            raise CheckpointError(
                f"The checkpoint was made by {len(kept.own)} workers, and this run has {size}: each of them goes on "
                f"with what only that worker has ({', '.join(bound)}).",
                change=f"Pass workers={len(kept.own)}, or checkpoint= another folder to begin anew.",
            )

    def _let_go(self) -> None:
        """Refer no more to who trains, who refers to this loop: in the user's process rows would stay for so long."""
        self._state, self._turns = RankState(), iter(())

    def _report(self, unit: str, number: int, scores: dict[str, Any], **more: int) -> None:
        """Report the scores of a whole epoch, or of what a kind of model has in place of epochs."""
        if self.leads:
            self._session.report(**{unit: number}, **more, **scores_of(scores))
            self._reported_s = time.monotonic()
            check_stop_told(self._task.stop_names, self.history, unit)
            self._checkpointer.scored(None, scores)

    @property
    def _place(self) -> int:
        """The number of the next batch, over all epochs."""
        return self._place_of(self.position)

    def _place_of(self, position: Position) -> int:
        return self._epochs.first(position.epoch) + position.batch

    def _pass_sync_point(self, *, epoch_ends: bool) -> bool:
        """Agree with the other ranks on what follows, and take a checkpoint where it is due."""
        save = stop = False
        if self.leads:
            save = self._checkpointer.due(self.position.steps, epoch_ends=epoch_ends)
            stop = self._session.should_stop()
        save, self.stopped = self._agreement.flags(save, stop)
        if save or (self.stopped and not epoch_ends and self._task.checkpoint is not None):
            self._save()
        return self.stopped

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
            header=self._state.take_shared(),
            own=own,
            history=self._told_history(),
            epochs=list(self._epochs_told),
            read=[*self._read, (self._task.run, self._agreement.size, self._taken_by_all())],
        )
        self._checkpointer.keep(kept, as_scored=self._is_as_scored())

    def _taken_by_all(self) -> dict[int, list[BatchRange]]:
        taken = self._epochs.taken(self._place_of(self.start), self._place, self._task.batch_size)
        return dict.fromkeys(range(self._agreement.size), taken)
