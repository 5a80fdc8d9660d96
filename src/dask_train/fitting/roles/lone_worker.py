"""A worker of ``fit`` that agrees with no other in its steps: where it is, and its checkpoints."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from dask_train.fitting.backends import Backend
from dask_train.fitting.roles.better import mode_of
from dask_train.fitting.roles.configuration import check_same, configuration_of, rates_of, set_rates
from dask_train.fitting.roles.worker import Worker
from dask_train.fitting.spec import FitTask
from dask_train.keras_models.serialization import restore_parts
from dask_train.role.session import Session
from dask_train.trainers.common.checkpointing import Checkpointer
from dask_train.trainers.common.epochs import Epochs
from dask_train.trainers.common.fit_checkpoint import FitCheckpoint
from dask_train.trainers.common.outcome import Outcome
from dask_train.trainers.common.score_names import check_stop_told
from dask_train.trainers.common.sync_point import Position


class LoneWorker(Worker):
    """A worker that goes through its batches at its own pace.

    Notes
    -----
    It has no :class:`~dask_train.trainers.common.loop.TrainingLoop`, whose checkpoints are of one position of all
    ranks: here each is elsewhere, and parameter servers know where.
    """

    def __init__(self, task: FitTask, session: Session, backend: Backend) -> None:
        super().__init__(task, session, backend)
        keeps = self.leads and task.checkpoint is not None
        self.configuration = configuration_of(task, self.data.schema, self.model) if keeps else {}
        self.epochs = Epochs.of(task, session.num_rows, operator.index(self.model.steps_per_execution))
        self._warnings.append(self.epochs.warning())
        self._keeper = Checkpointer(task, session, self.epochs, mode_of)
        self._position = Position(task.initial_epoch)

    @property
    def position(self) -> Position:
        """See :attr:`Worker.position`."""
        return self._position

    @property
    def keeper(self) -> Checkpointer:
        """See :attr:`Worker.keeper`."""
        return self._keeper

    def begin_after(self, steps: int) -> None:
        """Begin with the batch after so many steps of this worker."""
        self._position = Position(*self.epochs.place(self.epochs.first(self.task.initial_epoch) + steps), steps)

    def count_step(self) -> bool:
        """Note a step of training; whether it was the last of its epoch."""
        epoch, batch, steps = self._position.epoch, self._position.batch + 1, self._position.steps + 1
        last = batch == self.epochs.size(epoch)
        self._position = Position(epoch + 1, 0, steps) if last else Position(epoch, batch, steps)
        return last

    def epoch_told(self, logs: dict[str, Any]) -> None:
        """All callbacks have had their say on an epoch; in the first worker."""
        check_stop_told(self.task.stop_names, self.model.history.history)
        if self._position.batch == 0:  # what was cut short has scores of some of its rows
            self._keeper.scored(self.model, logs)

    def keep(self, **more: Any) -> None:
        """Let the keeper write a checkpoint of this worker's model, besides ``more`` of it."""
        header, arrays = self.model_kept()
        history = self.model.history
        kept = FitCheckpoint(
            run=self.task.run,
            order=self._keeper.order(),
            configuration=self.configuration,
            rates=rates_of(self.model),
            epoch=self._position.epoch,
            batch=self._position.batch,
            steps=self._position.steps,
            header=header,
            arrays=arrays,
            history={name: list(values) for name, values in history.history.items()},
            epochs=list(history.epoch),
            callbacks=self.states_kept(),
            **more,
        )
        self._keeper.keep(kept)

    def go_on(self, kept: FitCheckpoint, callbacks: Any) -> None:
        """Take over the model of a checkpoint, its history, and what its callbacks held.

        Raises
        ------
        CheckpointError
            It was begun with another model, compilation or data.
        """
        then, now, new_rate = kept.configuration, self.configuration, self.task.new_learning_rate
        if kept.run != self.task.run:  # in an attempt, the model that was sent is the same
            check_same(then, now, rates_then=kept.rates, new_rate=new_rate)
        restore_parts(self.model, kept.header, kept.arrays)
        if new_rate and kept.run != self.task.run:
            set_rates(self.model, now["learning_rate"])
        else:
            self.configuration = {**now, "learning_rate": then["learning_rate"]}
        callbacks.resume(kept.batch, follow(kept.history, kept.epochs), self.taking_kept(kept.callbacks))

    def trained(self, history: dict[str, list[Any]], epochs: list[int], **more: Any) -> Outcome:
        """Return what the first worker returns, with ``more`` of it, once its last checkpoint is written."""
        self._keeper.finish()
        best = self._keeper.best()
        if best is not None:
            restore_parts(self.model, best.header, best.arrays)
        outcome = Outcome(
            header={},
            history=history,
            epoch=epochs,
            num_rows=self.session.num_rows,
            warnings=[] if self._keeper.warning is None else [self._keeper.warning],
            num_steps=self.epochs.num_steps,
            best_epoch=None if best is None else best.epoch - 1,
            **more,
        )
        return self.handed_over(outcome)


def follow(values: dict[str, list[Any]], epochs: list[int]) -> Callable[[Any], None]:
    """Return what lets Keras' ``History`` go on with these."""

    def set_on(history: Any) -> None:
        history.history, history.epoch = values, epochs

    return set_on
