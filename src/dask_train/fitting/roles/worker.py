"""What every worker of ``fit`` does: Keras' own ``fit`` on its batches, from wherever it has to begin."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from functools import partial
from typing import Any

from keras.callbacks import History

from dask_train.fitting.backends import Backend
from dask_train.fitting.roles.aside import Aside
from dask_train.fitting.roles.better import mode_of
from dask_train.fitting.roles.callbacks import CallbackSync, Follower, Leader
from dask_train.fitting.roles.configuration import check_same, configuration_of, rates_of, set_rates
from dask_train.fitting.roles.gradients import RowFraction
from dask_train.fitting.roles.metrics import Metrics, Told
from dask_train.fitting.roles.models import build, built_already
from dask_train.fitting.roles.sent_callbacks import held_by, matched, open_callbacks, states_of, take_states
from dask_train.fitting.roles.steps import BatchFeed, Rank, Steps
from dask_train.fitting.roles.trackers import means_of_all
from dask_train.fitting.roles.validation import Validation
from dask_train.fitting.roles.variables import Variables
from dask_train.fitting.roles.weights import Weights
from dask_train.fitting.spec import VALIDATION, FitTask
from dask_train.keras_models.serialization import model_to_parts, parts_to_model, restore_parts
from dask_train.keras_models.torch_state import seed_torch
from dask_train.role.dataset import DataSet
from dask_train.role.session import Session
from dask_train.role.time_spent import CHECKPOINTS
from dask_train.trainers.common.checkpointing import Checkpointer
from dask_train.trainers.common.epochs import Epochs
from dask_train.trainers.common.fit_checkpoint import FitCheckpoint
from dask_train.trainers.common.outcome import Outcome
from dask_train.trainers.common.score_names import check_stop_told


class Worker(ABC):
    """One worker: its model, and how far it is.

    Attributes
    ----------
    data
        What it trains on.
    model
        Put together and built.
    epoch, batch
        The next batch.
    steps
        How many batches were gone through, also before this process began.
    epochs
        Which batches each of them has.
    callbacks
        The user's, in the first worker.
    share, metrics, keeper, moment
        Of this worker.
    weights
        What workers agree on in steps; None where they do not.
    """

    metrics: Metrics
    moment: CallbackSync
    weights: Weights | None = None

    def __init__(self, task: FitTask, session: Session, backend: Backend) -> None:
        assert session._data is not None
        self.data: DataSet = session._data
        self.task, self.session, self.backend = task, session, backend
        self.leads = session.rank == 0
        here = task.in_place
        self.model = parts_to_model(task.header, task.arrays) if here is None else here.model
        build(self.model, task.columns.with_rows(self.data.schema))
        seed_torch(task.random, task.seed, session.rank)
        self.callbacks, self.variables = open_callbacks(task.callbacks if self.leads else b"")
        if here is not None:
            self.callbacks, self.variables = here.callbacks, Variables.of(here.callbacks)
        keeps = self.leads and task.checkpoint is not None
        self.configuration = configuration_of(task, self.data.schema, self.model) if keeps else {}
        self.epochs = Epochs.of(task, self.model, session.num_rows)
        self.epoch, self.batch, self.steps = task.initial_epoch, 0, 0
        self.share, self.keeper = RowFraction(), Checkpointer(task, session, self.epochs, mode_of)
        self._warnings = [self.epochs.warning()]

    @abstractmethod
    def begin(self, callbacks: Any) -> None:
        """Settle weights, and with which batch to begin."""

    @abstractmethod
    def stepped(self, told: Told, *, ends: bool) -> Any:
        """A step of training was taken, with which a call of Keras' ``ends``, or not; the logs that callbacks see."""

    @abstractmethod
    def validated(self, told: Told, *, ends: bool, last: bool) -> Any:
        """As :meth:`stepped`, of validation; ``last`` of all its steps."""

    @abstractmethod
    def outcome(self, callbacks: Any) -> Outcome | None:
        """What this worker returns."""

    def fit(self) -> Outcome | None:
        """Train to the end."""
        task, model = self.task, self.model
        callbacks = self.callback_list()
        self.begin(callbacks)
        batches: Any = self.session.batches(
            epochs=max(1, -(-self.epochs.first(task.epochs) // self.epochs.batches_of_data)),
            batch_size=task.batch_size,
            shuffle=task.shuffle,
            seed=task.seed,
            start=divmod(self.position, self.epochs.batches_of_data),
        )
        feed = BatchFeed(
            batches=batches,
            num_in_call=lambda: self.epochs.in_call(self.epoch, self.batch),
            columns=task.columns,
            some_row=self.data.some_row,
            class_weight=task.class_weight,
            num_classes=task.num_classes,
        )
        model.train_function = self.function_of(feed, model.train_step, self.stepped)
        validation = self.validation()
        counting_once = means_of_all(self.backend, self.share) if self.session.size > 1 else nullcontext()
        with closing(batches), counting_once:
            self._fit_to_the_end(callbacks, validation)
        return self.outcome(callbacks)

    def _fit_to_the_end(self, callbacks: Any, validation: Any) -> None:
        model = self.model
        while self._begins_within_data() and (callbacks.opens or not model.stop_training):
            # A call of its own, which nobody but Keras sees: it counts from the beginning of the data.
            callbacks.closes = False
            with _weights_left_alone(model):
                self._fit(callbacks, validation, self.epochs.size(self.epoch) - self.batch, epochs=self.epoch + 1)
            callbacks.opens, callbacks.closes = False, True
        if callbacks.opens or not model.stop_training:
            of_data, epochs = self.epochs.batches_of_data, self.task.epochs
            self._fit(callbacks, validation, of_data, epochs, self.task.steps_per_epoch)
        else:  # stopped within such an epoch: what Keras' fit does at its end
            if model.optimizer is not None:
                model.optimizer.finalize_variable_values(model.trainable_weights)
            callbacks.on_train_end()

    def _begins_within_data(self) -> bool:
        """Whether the next batch is not the first of a turn through the data, as where it goes on with another's."""
        return self.epoch < self.task.epochs and (self.batch > 0 or not self.epochs.begins_turn(self.epoch))

    @property
    def position(self) -> int:
        """The epoch and number of the next batch."""
        return self.epochs.first(self.epoch) + self.batch

    def callback_list(self) -> Leader | Follower:
        """What Keras' ``fit`` calls at each moment."""
        if not self.leads:
            return Follower(self.moment)
        return Leader(
            self.callbacks,
            self.moment,
            report=self.session.report,
            should_stop=self.session.should_stop,
            keep_due=lambda epoch_ends: self.keeper.due(self.steps, epoch_ends=epoch_ends),
            epoch_ends=self.epoch_ends,
            epoch_over=self._epoch_over,
            aside=Aside(self.model, self.metrics),
            verbose=0,
            epochs=self.task.epochs,
            steps=self.epochs.num_steps,
        )

    def _epoch_over(self, logs: dict[str, Any]) -> None:
        check_stop_told(self.task.stop_names, self.model.history.history)
        if self.batch == 0:  # what was cut short has scores of some of its rows
            self.keeper.scored(self.model, logs)
        self.epoch_over()

    def epoch_ends(self, epoch: int) -> None:  # noqa: B027 - most have nothing to do
        """The last step of an epoch was taken, and no callback has had its say on it; in the first worker."""

    def epoch_over(self) -> None:  # noqa: B027 - most have nothing to do
        """All callbacks have had their say on an epoch; in the first worker."""

    def function_of(self, feed: BatchFeed, step: Any, after: Any) -> Callable[..., Any]:
        """The function that takes steps, as Keras calls it."""
        rank = Rank(
            session=self.session,
            backend=self.backend,
            model=self.model,
            share=self.share,
            weights=self.weights,
            metrics=self.metrics,
            adds_metrics=self.session.size > 1 or "ps" in self.session.peers,
        )
        return self.backend.as_function(Steps(rank, feed, step, after), self.model)

    def _fit(
        self, callbacks: Any, validation: Any, num_batches: int, epochs: int, steps_per_epoch: int | None = None
    ) -> None:
        with built_already(self.model):
            self.model.fit(
                self.backend.counted(num_batches),
                epochs=epochs,
                initial_epoch=self.epoch,
                steps_per_epoch=steps_per_epoch,
                validation_data=validation,
                validation_freq=self.task.validation_freq,
                shuffle=False,
                callbacks=callbacks,
                verbose=0,
            )

    def count_step(self) -> bool:
        """Note a step of training; whether it was the last of its epoch."""
        self.steps += 1
        self.batch += 1
        last = self.batch == self.epochs.size(self.epoch)
        if last:
            self.epoch, self.batch = self.epoch + 1, 0
        return last

    def validation(self) -> Any:
        """What Keras takes for validation data: it counts steps, whose batches come from the run.

        None where there is none, or a scorer validates.
        """
        if self.task.validation_columns is None or self.task.scored_elsewhere:
            return None
        validation = Validation(self.task, self.validation_data(), self.epochs.steps_per_execution)
        self._warnings.append(validation.warning)

        def after(told: Told, *, ends: bool) -> Any:
            return self.validated(told, ends=ends, last=validation.took())

        self.model.test_function = self.function_of(validation.feed, self.model.test_step, after)
        return self.backend.counted(validation.num_batches)

    def validation_data(self) -> DataSet:
        """The validation data, of which this worker goes through its share."""
        return self.session.dataset(VALIDATION)

    def keep(self, history: History, *, as_scored: bool = True, **more: Any) -> None:
        """Let the keeper write a checkpoint of this worker's model, besides ``more`` of it."""
        with self.session._link.spent.on(CHECKPOINTS):  # files are made in the background, checksums with them
            header, arrays = model_to_parts(self.model, checksums=False)
        kept = FitCheckpoint(
            run=self.task.run,
            order=self.keeper.order(),
            configuration=self.configuration,
            rates=rates_of(self.model),
            epoch=self.epoch,
            batch=self.batch,
            steps=self.steps,
            header=header,
            arrays=arrays,
            history=self.history_of(history),
            epochs=list(history.epoch),
            callbacks=held_by(self.callbacks, self.variables),
            **more,
        )
        self.keeper.keep(kept, as_scored=as_scored)

    def history_of(self, history: History) -> dict[str, list[Any]]:
        """What training has come to so far, copied; with what others have found."""
        return {name: list(values) for name, values in history.history.items()}

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
        states, lost = matched(self.callbacks, kept.callbacks, self.variables)
        for name in lost:
            self.session.notice(f"Callback {name} begins anew: what it held can't be pickled, so no checkpoint has it.")
        callbacks.resume(kept.batch, kept.history, kept.epochs, self.taking(states))

    def taking(self, states: list[bytes]) -> Callable[[], Any]:
        """What lets callbacks and variables hold what others held."""
        return partial(take_states, self.callbacks, states, self.variables)

    def trained(self, history: dict[str, list[Any]], epochs: list[int], **more: Any) -> Outcome:
        """What the first worker returns, with ``more`` of it, once its last checkpoint is written."""
        self.keeper.finish()
        best = self.keeper.best()
        if best is not None:
            restore_parts(self.model, best.header, best.arrays)
        in_place = self.task.in_place is not None
        if lost := [] if in_place else self.variables.lost():
            self.session.notice(
                f"Callbacks have changed {', '.join(lost)} in the first worker's process, and it stays as it was here. "
                "Let them gather numbers, text and arrays in a list or dict of the script, or in their attributes."
            )
        header, arrays = ({}, []) if in_place else model_to_parts(self.model)
        return Outcome(
            header=header,
            arrays=arrays,
            history=history,
            epoch=epochs,
            callbacks=[] if in_place else states_of(self.callbacks, self.variables),
            num_rows=self.session.num_rows,
            warnings=[warning for warning in (*self._warnings, self.keeper.warning) if warning],
            num_steps=self.epochs.num_steps,
            best_epoch=None if best is None else best.epoch - 1,
            **more,
        )


@contextmanager
def _weights_left_alone(model: Any) -> Iterator[None]:
    """While it lasts, the end of ``fit`` does not put an optimizer's moving averages in place of the weights."""
    optimizer = model.optimizer
    object.__setattr__(optimizer, "finalize_variable_values", lambda _: None)
    try:
        yield
    finally:
        object.__delattr__(optimizer, "finalize_variable_values")
