"""Checkpoints of ``fit``: deciding when one is due, and writing it in a background thread."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from dask_train.checkpoint.best import AUTO, is_better, mode_by_name
from dask_train.checkpoint.policy import is_due
from dask_train.errors import CheckpointError
from dask_train.role.session import Session
from dask_train.role.time_spent import CHECKPOINTS
from dask_train.run.stop_rule import number
from dask_train.trainers.common.epochs import Epochs
from dask_train.trainers.common.fit_checkpoint import FitCheckpoint
from dask_train.trainers.common.score_names import NO_NUMBER, is_number
from dask_train.trainers.common.task import LoopTask


@dataclass(kw_only=True, eq=False)
class _Candidate:
    """A checkpoint that is to be written, or that waits for its score.

    Attributes
    ----------
    checkpoint
        The checkpoint; None once it is written.
    score
        Its score if it is the best one so far; else None.
    awaits
        Epoch whose score is still to come from a scorer; None if no score is awaited.
    name
        Name under which it was written before its score came; empty if that has not happened.
    """

    checkpoint: FitCheckpoint | None
    score: float | None = None
    awaits: int | None = None
    name: str = ""


class Checkpointer:
    """Saves and loads the checkpoints of a fit; in the first worker.

    Parameters
    ----------
    epochs
        Epochs of the run; None if every step uses all rows, in no order.
    mode_of
        Called with a model and the name of one of its scores; returns "min" or "max", whichever is better.
    clock
        Monotonic clock, in seconds.

    Attributes
    ----------
    steps
        Number of steps after which the last checkpoint was taken.
    warning
        Why ``restore_best`` could not restore a model; else None.
    judges_by_validation, judges_later
        Whether ``best=`` names a ``val_`` score; whether a scorer delivers that score after the checkpoint is written.
    """

    warning: str | None = None
    _has_warned = False

    def __init__(
        self,
        task: LoopTask,
        session: Session,
        epochs: Epochs | None,
        mode_of: Callable[[Any, str], str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._task, self._session, self._epochs, self._clock = task, session, epochs, clock
        self._mode_of = mode_of
        self._last_s = clock()
        self.steps = 0
        self._lock = threading.Lock()
        self._writing: threading.Thread | None = None
        self._waiting: list[_Candidate] = []  # to be written next: the last one, and those that may be the best
        self._awaiting: list[_Candidate] = []  # still without their scores, in the order of their epochs
        self._scored_late: list[_Candidate] = []  # written, and their scores came later, or will not come
        self._open: Collection[int] = ()  # epochs whose scores may come
        self._early: dict[int, float] = {}  # a score that came before its checkpoint
        policy = task.checkpoint
        self._of = None if policy is None else policy.best
        self.judges_by_validation = self._of is not None and self._of.startswith("val_")
        self.judges_later = task.scored_elsewhere and self.judges_by_validation
        self._mode = AUTO if policy is None else mode_by_name(policy.best, policy.mode)
        self._best_score: float | None = None
        self._score: float | None = None  # of the model at this moment
        self._failed: BaseException | None = None

    @property
    def judged_by(self) -> str | None:
        """Return the score by which the best checkpoint is known; None if it is not to be known."""
        return self._of

    def due(self, steps: int, *, epoch_ends: bool) -> bool:
        """Return whether to save a checkpoint now, after that many steps in all.

        While one is being written no other is due, except at the end of an epoch, where it waits in memory.

        Raises
        ------
        CheckpointError
            The last one could not be written.
        """
        self._raise_failure()
        if self._task.checkpoint is None:
            return False
        if epoch_ends:
            return True
        if self._writing is not None:
            return False
        policy, seconds = self._task.checkpoint, self._clock() - self._last_s
        return is_due(policy.every_steps, policy.every_s, steps=steps, last_steps=self.steps, seconds=seconds)

    def keep(self, checkpoint: FitCheckpoint, *, as_scored: bool = True) -> None:
        """Write a checkpoint in the background, after the one that is being written; its arrays must not change.

        Parameters
        ----------
        as_scored
            Whether it has the weights that were, or will be, validated; else it can't be the best one.
        """
        self._last_s, self.steps = self._clock(), checkpoint.steps
        score, self._score = self._score, None
        if not as_scored:
            self._tell_of_set_weights()
        one, epoch = _Candidate(checkpoint=checkpoint), checkpoint.epoch - 1
        with self._lock:
            if as_scored:
                one.score = self._if_best(score if checkpoint.batch else self._early.pop(epoch, score))
            if as_scored and not checkpoint.batch and epoch in self._open:
                one.awaits = epoch
                self._awaiting.append(one)
            # An earlier one that still waits is dropped, as this one is newer; those that may be the best stay.
            self._waiting = [
                each
                for each in self._waiting
                if each.awaits is not None or (each.score is not None and one.score is None)
            ]
            self._waiting.append(one)
            self._go_on_writing()

    def scored(self, model: Any, logs: dict[str, Any]) -> None:
        """Record the logs of an epoch, whose checkpoint comes next.

        Raises
        ------
        ValueError
            The logs have no score of the name that ``best=`` has, or one that is no number, or Keras can't tell whether
            less or more is better.
        """
        self._score = None
        if self._of is None:
            return
        validated = any(name.startswith("val_") for name in logs)
        if self._of not in logs and not self.judges_later:
            if validated or not self._of.startswith("val_"):
                raise ValueError(
                    f"The best checkpoint is to be known by {self._of!r}, and after an epoch there are "
                    f"{', '.join(logs)}. Name one of these in dt.Checkpoint(best=...)."
                )
            return
        if not (self.judges_later or is_number(logs[self._of])):
            raise ValueError(f"The best checkpoint is to be known by {self._of!r}, {NO_NUMBER}")
        if self._mode == AUTO:
            self._mode = self._mode_of(model, self._of)
        if not self.judges_later:
            self._score = number(logs[self._of])

    def expect_scores(self, epochs: Collection[int]) -> None:
        """Expect scores of these epochs only, which a scorer works on, or will; from any thread."""
        with self._lock:
            self._open = frozenset(epochs) if self.judges_later else ()
            for one in [one for one in self._awaiting if one.awaits not in self._open]:
                self._stop_awaiting(one)

    def take_scores(self, epoch: int, scores: dict[str, float]) -> None:
        """Take the scores that a scorer has computed for an epoch's weights; from any thread."""
        if not self.judges_later or self._of not in scores:
            return
        with self._lock:
            known = [one for one in self._awaiting if one.awaits == epoch]
            for one in known:
                one.score = self._if_best(scores[self._of])
                self._stop_awaiting(one)
            self._early = {} if known else {epoch: scores[self._of]}

    def best(self) -> FitCheckpoint | None:
        """Load the best checkpoint if ``restore_best`` is set, else return None; after :meth:`finish`.

        Raises
        ------
        CheckpointError
            The best checkpoint is damaged, or can't be read.
        """
        policy = self._task.checkpoint
        if policy is None or not policy.restore_best:
            return None
        if self._best_score is None:
            self.warning = (
                f"restore_best=True: no epoch has ended with a number for {self._of!r}, so the model is as it was last."
            )
            return None
        loaded = self._session.checkpoints().load_best(self._session.scratch)
        assert loaded is not None
        return FitCheckpoint.load(loaded.folder)

    def finish(self) -> None:
        """Wait until all checkpoints are written, and expect no more scores.

        Raises
        ------
        CheckpointError
            A checkpoint could not be written, or took too long.
        """
        self.expect_scores(())
        writing = self._writing
        if writing is not None:
            with self._session._link.spent.on(CHECKPOINTS):
                writing.join(self._task.collective_timeout_s)
            if writing.is_alive():
                raise CheckpointError(
                    f"A checkpoint is still being written after {self._task.collective_timeout_s:g} s.",
                    "Where checkpoints are kept is slow, or does not answer.",
                    "Pass checkpoint= a faster place, or raise train.progress.timeout.",
                )
        self._raise_failure()

    def load(self, check: Callable[[FitCheckpoint], None] | None = None) -> FitCheckpoint | None:
        """Load the last checkpoint to resume from: this run's, or with ``resume`` another run's; None if there is none.

        Parameters
        ----------
        check
            Called with the checkpoint before all other checks; raises if training can't resume from it.

        Raises
        ------
        CheckpointError
            The checkpoint can't be read, or is of other data or another order of rows.
        """
        if self._task.checkpoint is None:
            return None
        if not (self._task.resume or self._session.attempt):
            self._tell_of_earlier()
            return None
        folder = self._session.open_checkpoint(own=not self._task.resume)
        if folder is None:
            return None
        checkpoint = FitCheckpoint.load(folder)
        if check is not None:
            check(checkpoint)
        self._check(checkpoint)
        self.steps = checkpoint.steps
        self._check_best(checkpoint)
        return checkpoint

    def _tell_of_earlier(self) -> None:
        """Print a notice if checkpoints of another run will be replaced: ``resume=True`` may have been forgotten."""
        folder = self._session.checkpoints()
        if folder.has_earlier:
            self._session.notice(
                f"{folder.url} has checkpoints of an earlier run. This one begins anew, and its own replace them. To "
                "continue from the last of them, pass resume=True; to keep both, another folder."
            )

    def data_order(self) -> dict[str, Any]:
        """Return the settings that determine the order of rows."""
        task, epochs = self._task, self._epochs
        if epochs is None:
            return {"rows": self._session.num_rows}
        workers = (
            {"workers": self._session.size} if "ps" in self._session.peers else {}
        )  # with servers, each worker has its own position in its rows
        # If an epoch is not a whole pass over the data, the order depends on the epoch that training began with.
        began = {} if epochs.length == epochs.batches_of_data else {"initial_epoch": task.initial_epoch}
        return {
            **workers,
            **began,
            "rows": self._session.num_rows,
            "batch_size": task.batch_size,
            "batches in an epoch": epochs.length,
            "shuffle": task.shuffle,
            "seed": task.seed,
        }

    def _check(self, checkpoint: FitCheckpoint) -> None:
        here = self.data_order()
        for name in {**checkpoint.order, **here}:
            if name == "workers" and None not in (here.get(name), checkpoint.order.get(name)):
                continue  # ServerLoop knows what each worker has left
            if here.get(name) != (value := checkpoint.order.get(name)):
                raise CheckpointError(
                    f"The checkpoint was made with {name}={value!r}, and this run has {here.get(name)!r}: it could "
                    "not continue with the rows that are left.",
                    change="Pass the same data and arguments as then, or another folder.",
                )

    def _check_best(self, checkpoint: FitCheckpoint) -> None:
        """Restore the best score so far.

        Raises
        ------
        CheckpointError
            Earlier epochs were trained without ``best=``, so the best one is unknown.
        """
        best = self._session.checkpoints().best
        if best is not None:
            self._best_score, self._mode = best.score, best.mode
        elif self._of not in (None, checkpoint.judged_by) and not all(
            map(math.isnan, map(number, checkpoint.history.get(self._of or "", [])))
        ):  # else no epoch has ended with a number, or callbacks have set other weights after each
            raise CheckpointError(
                f"The best checkpoint is to be known by {self._of!r}, and this training went through "
                f"{len(checkpoint.epochs)} epochs of which none was kept as the best.",
                "It was begun without best=.",
                "Leave best= out, or begin anew in another folder.",
            )

    def _if_best(self, score: float | None) -> float | None:
        """Return the score, and remember it, if it is the best one so far; else return None."""
        if score is None or not is_better(score, self._best_score, mode=self._mode):
            return None
        self._best_score = score
        return score

    def _stop_awaiting(self, one: _Candidate) -> None:
        """Stop waiting for a candidate's score."""
        self._awaiting.remove(one)
        one.awaits = None
        if one.name:
            self._scored_late.append(one)
            self._go_on_writing()

    def _go_on_writing(self) -> None:
        if self._writing is None:
            self._writing = threading.Thread(target=self._write, name="dask-train-checkpoint", daemon=True)
            self._writing.start()

    def _write(self) -> None:
        """Write all checkpoints that wait; the background thread."""
        while True:
            with self._lock:
                if not (self._scored_late or self._waiting):
                    self._writing = None
                    return
                one = self._scored_late.pop(0) if self._scored_late else self._waiting.pop(0)
                score, is_held = one.score, one.awaits is not None
            try:
                folder = self._session.checkpoints()
                if one.checkpoint is None:
                    folder.set_score(one.name, score, self._mode)
                    continue
                where = folder.save(
                    one.checkpoint.write, self._session.scratch, score=score, mode=self._mode, is_held=is_held
                )
            except BaseException as error:
                self._failed = error
                return  # the next step, or the end, raises it
            with self._lock:
                one.checkpoint = None  # its arrays are a whole model
                one.name = where.rpartition("/")[2] if is_held else ""
                if is_held and one.awaits is None:  # its score came while it was written
                    self._scored_late.append(one)
            del one

    def _tell_of_set_weights(self) -> None:
        if not self._has_warned:
            self._has_warned = True
            self._session.notice(
                f"The best checkpoint is to be known by {self._of!r}, and at the end of an epoch callbacks left other "
                "weights in the model than were validated: no checkpoint has those, so such an epoch's is not taken "
                "for the best one. Set weights when an epoch begins; SwapEMAWeights has swap_on_epoch=True."
            )

    def _raise_failure(self) -> None:
        if self._failed is not None:
            raise self._failed
