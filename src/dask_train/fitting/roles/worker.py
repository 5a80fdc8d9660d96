"""What every worker of ``fit`` does: Keras' own ``fit`` on its batches, from wherever it has to begin."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, nullcontext
from dataclasses import replace
from typing import Any

from dask_train.fitting.backends import Backend
from dask_train.fitting.roles.aside import Aside
from dask_train.fitting.roles.callback_sync import CallbackSync
from dask_train.fitting.roles.callbacks import Follower, Leader
from dask_train.fitting.roles.configuration import rates_of, set_rates
from dask_train.fitting.roles.gradients import RowFraction
from dask_train.fitting.roles.loop import CALLBACKS, KerasLoop
from dask_train.fitting.roles.metrics import Metrics, StepLogs
from dask_train.fitting.roles.models import build, built_already
from dask_train.fitting.roles.sent_callbacks import (
    CallbackState,
    ended_by,
    has_ended,
    held_by,
    matched,
    open_callbacks,
    progress_of,
    states_of,
    take_states,
)
from dask_train.fitting.roles.steps import BatchFeed, Rank, Steps
from dask_train.fitting.roles.trackers import means_of_all
from dask_train.fitting.roles.validation import Validation
from dask_train.fitting.roles.variables import Variables
from dask_train.fitting.roles.weights import Weights, seeds_of_rank
from dask_train.fitting.spec import VALIDATION, FitTask
from dask_train.keras_models.parts import parts_by_key
from dask_train.keras_models.serialization import model_to_parts, parts_to_model, restore_parts
from dask_train.keras_models.torch_state import seed_torch
from dask_train.role.dataset import DataSet
from dask_train.role.session import Session
from dask_train.role.time_spent import CHECKPOINTS
from dask_train.trainers.common.checkpointer import Checkpointer
from dask_train.trainers.common.epochs import Epochs
from dask_train.trainers.common.fit_checkpoint import MAKING, MODEL
from dask_train.trainers.common.outcome import Outcome
from dask_train.trainers.common.rank_state import RankState
from dask_train.trainers.common.sync_point import Position


class Worker(ABC):
    """One worker: its model, and how far it is.

    Attributes
    ----------
    data
        What it trains on.
    model
        Put together and built.
    loop
        Where it is, and what happens between two steps.
    callbacks
        The user's, in the first worker.
    share, metrics, moment
        Of this worker.
    weights
        What workers agree on in steps; None if they do not.
    applies_last
        Whether gradients are applied when all else in a step is done.
    """

    loop: KerasLoop
    metrics: Metrics
    moment: CallbackSync
    weights: Weights | None = None
    applies_last = False

    def __init__(self, task: FitTask, session: Session, backend: Backend) -> None:
        assert session._data is not None
        self.data: DataSet = session._data
        self.task, self.session, self.backend = task, session, backend
        self.leads = session.rank == 0
        here = task.in_process
        self.model = parts_to_model(task.header, task.arrays) if here is None else here.model
        sent = task.callbacks if self.leads else b""
        parts = parts_by_key(self.model) if sent else {}  # as in the client; building adds layers and weights
        build(self.model, task.columns.with_rows(self.data.schema))
        seed_torch(task.random, task.seed, session.rank)
        self.callbacks, self.variables = open_callbacks(sent, parts)
        if here is not None:
            self.callbacks, self.variables = here.callbacks, Variables.of(here.callbacks)
        # Checkpoints and mirrors are read where the model is built, too.
        self._kept_variables = self.variables.of_parts(parts_by_key(self.model) if self.callbacks else {})
        self._progress = progress_of(self.callbacks, self._kept_variables.parts)
        self.share = RowFraction()
        self._reading = ExitStack()  # what validation reads
        self._warnings: list[str | None] = []
        self._aside: Aside | None = None
        self._held: tuple[int, list[list[Any]]] | None = None  # what callbacks hold, and how often they had run then
        self._callback_states: list[bytes] = []  # of a checkpoint

    @property
    def position(self) -> Position:
        """The next batch, and how many steps were taken."""
        return self.loop.position

    @property
    def epochs(self) -> Epochs:
        """Return the batches of each epoch."""
        return self.loop.plan

    @property
    def keeper(self) -> Checkpointer:
        """What keeps checkpoints."""
        return self.loop.checkpointer

    @property
    def is_one_of_several(self) -> bool:
        """Return whether other workers train the same model."""
        return self.session.size > 1

    @abstractmethod
    def begin(self, callbacks: Any) -> None:
        """Settle weights, and with which batch to begin."""

    @abstractmethod
    def stepped(self, step_logs: StepLogs, *, ends: bool) -> Any:
        """Note a step of training, with which a call of Keras' ``ends`` or not; return what callbacks see."""

    @abstractmethod
    def validated(self, step_logs: StepLogs, *, ends: bool, last: bool) -> Any:
        """Do as :meth:`stepped`, of validation; ``last`` of all its steps."""

    @abstractmethod
    def outcome(self, callbacks: Any) -> Outcome | None:
        """Return what this worker returns."""

    def train_step(self) -> Any:
        """Return the step that is taken for each batch."""
        return self.model.train_step

    def fit(self) -> Outcome | None:
        """Train to the end."""
        task, model = self.task, self.model
        callbacks = self.callback_list()
        self.begin(callbacks)
        batches = self.batches()
        feed = BatchFeed(
            batches=batches,
            num_in_call=lambda: self.loop.num_in_call,
            columns=task.columns,
            some_row=self.data.some_row,
            class_weight=task.class_weight,
            num_classes=task.num_classes,
            is_taken=lambda: self.loop.is_behind_step,
        )
        model.train_function = self.function_of(feed, self.train_step(), self.stepped)
        validation = self.validation()
        counting_once = means_of_all(self.backend, self.share) if self.is_one_of_several else nullcontext()
        with closing(batches), self._reading, counting_once:
            self._fit_to_the_end(callbacks, validation)
        if self.loop.stopped:  # perhaps before this call, so that no callback of it has said so
            model.stop_training = True
        return self.outcome(callbacks)

    def _fit_to_the_end(self, callbacks: Any, validation: Any) -> None:
        model = self.model
        while self._begins_within_data() and (callbacks.opens or not model.stop_training):
            # A call of its own, which only Keras sees: it counts from the beginning of the data.
            callbacks.closes = False
            with _weights_left_alone(model):
                epoch, batch = self.position.epoch, self.loop.first_of_call
                self._fit(callbacks, validation, self.epochs.size(epoch) - batch, epochs=epoch + 1)
            callbacks.opens, callbacks.closes = False, True
        if callbacks.opens or not model.stop_training:
            of_data = self.epochs.batches_of_data
            epochs = self.position.epoch if self.loop.stopped else self.task.epochs  # stopped before it was resumed
            self._fit(callbacks, validation, of_data, epochs, self.task.steps_per_epoch)
        else:  # stopped within such an epoch: what Keras' fit does at its end
            if model.optimizer is not None:
                model.optimizer.finalize_variable_values(model.trainable_weights)
            callbacks.on_train_end()

    def _begins_within_data(self) -> bool:
        """Whether the next batch is not the first of a pass over the data, as when it continues another's."""
        epoch, batch = self.position.epoch, self.loop.first_of_call
        is_within = batch > 0 or not self.epochs.begins_pass(epoch)
        return epoch < self.task.epochs and is_within and not self.loop.stopped

    def batches(self) -> Any:
        """Return this worker's share of each batch from where training is, to be closed."""
        return self.epochs.batches(self.session, self.task, self.place)

    @property
    def place(self) -> int:
        """The number of the next batch, over all epochs."""
        return self.epochs.first(self.position.epoch) + self.position.batch

    def callback_list(self) -> Leader | Follower:
        """Return what Keras' ``fit`` calls at each moment."""
        if not self.leads:
            return Follower(self.moment)
        self._aside = Aside(self.model, self.metrics)
        return Leader(
            self.callbacks,
            self.moment,
            aside=self._aside,
            verbose=0,
            epochs=self.task.epochs,
            steps=self.epochs.num_steps,
        )

    def function_of(self, feed: BatchFeed, step: Any, after: Any) -> Callable[..., Any]:
        """Return the function that takes steps, as Keras calls it."""
        rank = Rank(
            session=self.session,
            backend=self.backend,
            model=self.model,
            share=self.share,
            weights=self.weights,
            metrics=self.metrics,
            adds_metrics=self.session.size > 1 or "ps" in self.session.peers,
            applies_last=self.applies_last,
        )
        return self.backend.as_function(Steps(rank, feed, step, after), self.model)

    def _fit(
        self, callbacks: Any, validation: Any, num_batches: int, epochs: int, steps_per_epoch: int | None = None
    ) -> None:
        with built_already(self.model):
            self.model.fit(
                self.backend.counted(num_batches),
                epochs=epochs,
                initial_epoch=self.position.epoch,
                steps_per_epoch=steps_per_epoch,
                validation_data=validation,
                validation_freq=self.task.validation_freq,
                shuffle=False,
                callbacks=callbacks,
                verbose=0,
            )

    def validation(self) -> Any:
        """Return what Keras takes for validation data: it counts steps, whose batches come from the run.

        None if there is none, or a scorer validates.
        """
        if self.task.validation_columns is None or self.task.scored_elsewhere:
            return None
        validation = Validation(self.task, self.validation_data(), self.epochs.steps_per_execution)
        self._warnings.append(validation.warning)

        def after(step_logs: StepLogs, *, ends: bool) -> Any:
            return self.validated(step_logs, ends=ends, last=validation.took())

        self.moment.begin_validation = validation.begin
        self._reading.enter_context(closing(validation))
        self.model.test_function = self.function_of(validation.feed, self.model.test_step, after)
        return self.backend.counted(validation.num_batches)

    def validation_data(self) -> DataSet:
        """Return the validation data, of which this worker goes through its share."""
        return self.session.dataset(VALIDATION)

    def state(self) -> RankState:
        """Return the state that all workers have alike: the model, and what callbacks hold."""
        state = RankState().shared(MODEL, self._model_state, self._restore_model)
        return state.shared(CALLBACKS, self._callbacks_state, self._restore_callbacks, trained=False, led=True)

    def resume(self, callbacks: Any) -> None:
        """Let the first worker's callbacks continue where the loop begins."""
        if self.leads:
            callbacks.resume(self.loop.first_of_call, self.loop.follow, self._continue_callbacks)

    def _continue_callbacks(self) -> None:
        """Let callbacks, for which training has begun, continue what those of a checkpoint held."""
        for progress in self._progress:
            progress.note()
        self._kept_variables.note()
        take_states(self._progress, self._callback_states, self._kept_variables)

    def _model_state(self) -> dict[str, Any]:
        with self.session._link.spent.on(CHECKPOINTS):  # files are made in the background, checksums with them
            header, arrays = model_to_parts(self.model, checksums=False)
        state_header = {name: value for name, value in header.items() if name not in MAKING}
        return {"parts": [state_header, arrays], "rates": rates_of(self.model)}

    def _restore_model(self, state: dict[str, Any]) -> None:
        restore_parts(self.model, *state["parts"])
        seeds_of_rank(self.model, self.session.rank)
        rates, self.loop.new_rates = self.loop.new_rates, None
        if rates is not None:
            set_rates(self.model, rates)  # others get them from this one

    def _callbacks_state(self) -> list[list[Any]]:
        """Return what callbacks hold, pickled when they have run since it was asked for last."""
        num_times = 0 if self._aside is None else self._aside.num_times
        if self._held is None or self._held[0] != num_times:
            states = held_by(self._progress, self._kept_variables)
            self._held = num_times, [list(state) for state in states]
            if unknown := [state.name for state in states if not state.state]:
                self.loop.mirror_no_more(f"what callback {unknown[0]} holds can't be pickled.")
        if getattr(self.model, "stop_training", False) and not self.moment.control.halt:
            return [*self._held[1], list(ended_by(self._progress))]
        return self._held[1]

    def callbacks_end_again(self, saved: list[list[Any]]) -> bool:
        """Return whether callbacks had ended training in a checkpoint, and have the same arguments now."""
        return has_ended(self._progress, _callback_states(saved))

    def _restore_callbacks(self, saved: list[list[Any]]) -> None:
        """Let callbacks hold what others held, once training begins; a notice names those that begin anew."""
        if not self.leads:
            return
        states, lost = matched(self.callbacks, _callback_states(saved), self._kept_variables)
        if lost and self.loop.takes_place:
            self.loop.start_all_again(f"worker 0 was lost, whose callback {lost[0]} can't be pickled")
        for name in lost:
            self.session.notice(f"Callback {name} begins anew: what it held can't be pickled, so no checkpoint has it.")
        self._callback_states = states

    def handed_over(self, outcome: Outcome) -> Outcome:
        """Return what the first worker does: an outcome with the model and callbacks as they are now."""
        in_process = self.task.in_process is not None
        if lost := [] if in_process else self.variables.lost():
            self.session.notice(
                f"Callbacks have changed {', '.join(lost)} in the first worker's process, and it stays as it was here. "
                "Let them gather numbers, text and arrays in a list or dict of the script, or in their attributes."
            )
        header, arrays = ({}, []) if in_process else model_to_parts(self.model)
        return replace(
            outcome,
            header=header,
            arrays=arrays,
            callbacks=[] if in_process else states_of(self.callbacks, self.variables),
            stop_training=bool(getattr(self.model, "stop_training", False)),
            warnings=[warning for warning in (*self._warnings, *outcome.warnings) if warning],
        )


def _callback_states(saved: list[list[Any]]) -> list[CallbackState]:
    return [CallbackState(*state) for state in saved]


@contextmanager
def _weights_left_alone(model: Any) -> Iterator[None]:
    """While it lasts, the end of ``fit`` does not put an optimizer's moving averages in place of the weights."""
    optimizer = model.optimizer
    object.__setattr__(optimizer, "finalize_variable_values", lambda _: None)
    try:
        yield
    finally:
        object.__delattr__(optimizer, "finalize_variable_values")
