"""The training loop of workers that train one Keras model together, whose epochs Keras' own ``fit`` goes through."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import keras

from dask_train.data.columns import Columns
from dask_train.errors import CheckpointError
from dask_train.fitting.roles.configuration import check_same, configuration_of
from dask_train.fitting.roles.validation import ValidationBeside
from dask_train.fitting.roles.weights import value_of
from dask_train.fitting.spec import FitTask
from dask_train.keras_models.torch_state import torch_buffers
from dask_train.role.session import Session
from dask_train.trainers.common.agreement import Agreement
from dask_train.trainers.common.checkpointer import Checkpointer
from dask_train.trainers.common.epochs import Epochs
from dask_train.trainers.common.fit_checkpoint import MODEL, FitCheckpoint
from dask_train.trainers.common.guard import checksum
from dask_train.trainers.common.loop import TrainingLoop

# Parts of the state besides the model: what callbacks hold; seeds, moving averages and torch's random numbers of each
# worker; and its share of what metrics have counted in the running epoch.
CALLBACKS, OWN, METRICS = "callbacks", "random numbers and averages", "metrics"


class KerasLoop(TrainingLoop):
    """The training loop of one worker. Keras' callbacks pass its sync points, and its history is that of Keras.

    Parameters
    ----------
    model : keras.Model
        Built.
    data
        The columns of the rows.

    Attributes
    ----------
    beside
        Validation by a scorer, in the first worker; None without one.
    new_rates
        Learning rates that take the place of those of the checkpoint; None if these stay.
    ends_again
        Return whether callbacks of this call end training where those of a checkpoint, which it is given, have ended
        it; None if training continues in any case.
    """

    beside: ValidationBeside | None = None
    new_rates: list[float | None] | None = None
    ends_again: Callable[[list[list[Any]]], bool] | None = None
    _kept_unscored: FitCheckpoint | None = None  # whose scorer has ended with its run
    _has_noted_numbers = False
    _validated: list[int] | None = None  # the weights that have a score, where one is looked at

    def __init__(self, task: FitTask, session: Session, agreement: Agreement, model: Any, data: Columns) -> None:
        steps_per_execution = operator.index(model.steps_per_execution)

        def better(_: Any, name: str) -> str:
            return mode_of(model, name)

        super().__init__(task, session, agreement, mode_of=better, steps_per_execution=steps_per_execution)
        self._model, self._new_rate = model, task.new_learning_rate
        if self.leads and task.checkpoint is not None:
            self._configuration = configuration_of(task, data, model)

    @property
    def plan(self) -> Epochs:
        """Which batches each epoch has."""
        return self._epochs

    @property
    def checkpointer(self) -> Checkpointer:
        """Return what keeps checkpoints, in the first worker."""
        return self._checkpointer

    @property
    def first_of_call(self) -> int:
        """Return the batch with which Keras' next call begins; a lost worker may have taken steps of that call."""
        batch, several = self.position.batch, self._epochs.steps_per_execution
        return (batch - 1) // several * several if self._behind_step else batch

    @property
    def num_in_call(self) -> int:
        """Return how many steps Keras' next call takes, with one that a lost worker has taken."""
        whole = self._epochs.in_call(self.position.epoch, self.first_of_call)
        return whole - (self.position.batch - 1 - self.first_of_call) if self._behind_step else whole

    def count_step(self) -> None:
        """Count a step; one that was taken by a lost worker is counted already."""
        if self._behind_step:
            self._behind_step = False
        else:
            super().count_step()

    def note_numbers(self, names: str) -> None:
        """Note that callbacks have set numbers in attributes, which a scorer's model does not get."""
        if self._task.scored_elsewhere and not self._has_noted_numbers:
            self._has_noted_numbers = True
            self._session.notice(
                f"A callback has set {names}, which the scorer does not see. If validation depends on it, keep it in "
                "an attribute that is a keras.Variable, and assign to it, or leave scorer= out."
            )

    def follow(self, history: Any) -> None:
        """Let Keras' ``History`` continue that of before; it is this loop's from now on."""
        if self.position.steps:
            history.history, history.epoch = self.history, self._reported_epochs
        self.history, self._reported_epochs = history.history, history.epoch

    def epoch_ends(self) -> None:
        """Note, in the first worker, that an epoch's last step was taken, before callbacks have their say on it."""
        if self.beside is not None and self.beside.epoch_ends(self.position.epoch):
            self.note_validated()

    def note_validated(self) -> None:
        """Note that the weights are those that were validated, or that the scorer will validate."""
        if self._checkpointer.judges_by_validation or (self.watched_score or "").startswith("val_"):
            self._validated = self._fingerprint()

    def validate_again(self) -> None:
        """Let the weights of a checkpoint be validated whose scorer has ended with the run; it may be the best one."""
        checkpoint, self._kept_unscored = self._kept_unscored, None
        if checkpoint is None or self.beside is None:
            return
        if self.beside.epoch_ends(checkpoint.epochs[-1]) and self._checkpointer.judges_later:
            self._checkpointer.scored(self._model, {})
            self._checkpointer.keep(checkpoint)

    def take_model(self) -> dict[str, Any]:
        """Return the model, without what callbacks hold."""
        return self._state.take_trained()

    def _fingerprint(self) -> list[int]:
        return [checksum(value_of(one)) for one in (*self._model.weights, *torch_buffers(self._model))]

    def is_as_scored(self) -> bool:
        """Return whether the weights are those that were validated, also after callbacks."""
        return self._validated is None or self._validated == self._fingerprint()

    def _note_saved(self) -> None:
        self._validated = None

    def _check_begun(self, checkpoint: FitCheckpoint) -> None:
        if checkpoint.run == self._task.run:  # in an attempt, the model that was sent is the same
            self._configuration = checkpoint.configuration
            return
        then, now = checkpoint.configuration, self._configuration
        if "keras" not in then:
            raise CheckpointError(
                "The checkpoint is of no Keras model.",
                change="Pass the model of then, or checkpoint= another folder to begin anew.",
            )
        rates = checkpoint.shared[MODEL]["rates"]
        check_same(then, now, rates_then=rates, new_rate=self._new_rate)
        if self._new_rate:
            self.new_rates = now["learning_rate"]
        else:
            self._configuration = {**now, "learning_rate": then["learning_rate"]}

    def _has_ended(self, checkpoint: FitCheckpoint) -> bool:
        """Return whether callbacks had ended training with an epoch; one that they stopped within continues."""
        ends_again = None if checkpoint.batch else self.ends_again
        return ends_again is not None and ends_again(checkpoint.shared[CALLBACKS])

    def _take_over(self, checkpoint: FitCheckpoint) -> None:
        if self.beside is not None:
            if checkpoint.epochs and not checkpoint.batch:
                known = {name: list(values) for name, values in checkpoint.history.items()}
                self._kept_unscored = replace(checkpoint, history=known, epochs=list(checkpoint.epochs))
            self.beside.take_known(checkpoint.history, checkpoint.epochs)
        super()._take_over(checkpoint)

    def _note(self, epoch: int, scores: dict[str, Any]) -> None:
        """Leave the history alone: Keras' callback has noted these."""

    def _copied_history(self) -> dict[str, list[Any]]:
        history = super()._copied_history()
        return history if self.beside is None else {**history, **self.beside.found(self._reported_epochs)}


def mode_of(model: Any, name: str) -> str:
    """Return whether less ("min") or more ("max") of a score is better, as Keras' own callbacks have it.

    Raises
    ------
    ValueError
        Keras can't tell.
    """
    judge = keras.callbacks.EarlyStopping(name, patience=sys.maxsize)
    judge.set_model(model)
    judge.on_train_begin()
    try:
        for epoch in range(2):
            judge.on_epoch_end(epoch, {name: float(epoch)})
    except ValueError as error:
        raise ValueError(
            f"The best checkpoint is to be known by {name!r}, and Keras can't tell whether less or more of it is "
            "better. Pass mode='min' or mode='max' to dt.Checkpoint."
        ) from error
    return "max" if judge.best_epoch else "min"
