"""What every worker of ``fit`` does: Keras' own ``fit`` on its batches, from wherever it has to begin."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from keras.callbacks import History

from dask_train.data.account import Stretch
from dask_train.fit_roles.backends import Backend
from dask_train.fit_roles.callbacks import Follower, Leader, Moment
from dask_train.fit_roles.gradients import Share
from dask_train.fit_roles.keeping import Keeper, Kept
from dask_train.fit_roles.metrics import Metrics
from dask_train.fit_roles.models import build, made
from dask_train.fit_roles.sent_callbacks import open_callbacks, states_of
from dask_train.fit_roles.steps import Feed, Rank, Steps
from dask_train.fit_roles.task import VALIDATION, FitTask, Outcome
from dask_train.fit_roles.validation import Validation
from dask_train.fit_roles.weights import Weights
from dask_train.frameworks.keras.serialization import model_to_parts
from dask_train.rank_dataset import DataSet
from dask_train.session import Session


class Worker(ABC):
    """One worker: its model, and how far it is.

    Attributes
    ----------
    model
        Put together and built.
    epoch, batch
        The next batch.
    steps
        How many batches were gone through, also before this process began.
    num_batches
        Of an epoch.
    callbacks
        The user's, in the first worker.
    share, metrics, keeper, moment
        Of this worker.
    weights
        What workers agree on in steps; None where they do not.
    """

    metrics: Metrics
    moment: Moment
    weights: Weights | None = None

    def __init__(self, task: FitTask, session: Session, backend: Backend) -> None:
        assert session.schema is not None
        self.task, self.session, self.backend = task, session, backend
        self.leads = session.rank == 0
        self.columns = session.schema.columns
        self.model = made(task.header, task.arrays)
        build(self.model, task.layout, self.columns)
        self.callbacks = open_callbacks(task.callbacks) if self.leads else []
        self.batches_of_data = math.ceil(session.num_rows / task.batch_size)
        self.num_batches = task.steps_per_epoch or self.batches_of_data
        self.epoch, self.batch, self.steps = task.initial_epoch, 0, 0
        self.share, self.keeper = Share(), Keeper(task, session)

    @abstractmethod
    def begin(self, callbacks: Any) -> None:
        """Settle weights, and with which batch to begin."""

    @abstractmethod
    def stepped(self, logs: Any) -> Any:
        """A step of training was taken; the logs that callbacks see."""

    @abstractmethod
    def validated(self, logs: Any, *, last: bool) -> Any:
        """As :meth:`stepped`, of validation."""

    @abstractmethod
    def outcome(self, callbacks: Any) -> Outcome | None:
        """What this worker returns."""

    def fit(self) -> Outcome | None:
        """Train to the end."""
        task, model = self.task, self.model
        callbacks = self.callback_list()
        self.begin(callbacks)
        batches: Any = self.session.batches(
            epochs=max(1, math.ceil(task.epochs * self.num_batches / self.batches_of_data)),
            batch_size=task.batch_size,
            shuffle=task.shuffle,
            seed=task.seed,
            start=divmod(self.epoch * self.num_batches + self.batch, self.batches_of_data),
        )
        feed = Feed(
            batches=batches,
            layout=task.layout,
            columns=self.columns,
            class_weight=task.class_weight,
            num_classes=task.num_classes,
        )
        model.train_function = self.steps_of(feed, model.train_step, self.stepped)
        validation = self.validation()
        try:
            if self.batch:  # an epoch that was begun: a call of its own, which nobody but Keras sees
                callbacks.closes = False
                with _weights_left_alone(model):
                    self._fit(callbacks, validation, self.num_batches - self.batch, self.epoch + 1)
                callbacks.opens, callbacks.closes = False, True
            if callbacks.opens or not model.stop_training:
                self._fit(callbacks, validation, self.num_batches, task.epochs)
            else:
                callbacks.on_train_end()
        finally:
            batches.close()
        return self.outcome(callbacks)

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
            epoch_over=self.epoch_over,
            verbose=0,
            epochs=self.task.epochs,
            steps=self.num_batches,
        )

    def epoch_over(self) -> None:  # noqa: B027 - most have nothing to do
        """All callbacks have had their say on an epoch; in the first worker."""

    def steps_of(self, feed: Feed, step: Any, after: Any) -> Steps:
        """The function that takes steps."""
        rank = Rank(
            session=self.session,
            backend=self.backend,
            model=self.model,
            share=self.share,
            weights=self.weights,
            metrics=self.metrics,
        )
        return Steps(rank, feed, step, after)

    def _fit(self, callbacks: Any, validation: Any, num_batches: int, epochs: int) -> None:
        self.model.fit(
            self.backend.counted(num_batches),
            epochs=epochs,
            initial_epoch=self.epoch,
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
        last = self.batch == self.num_batches
        if last:
            self.epoch, self.batch = self.epoch + 1, 0
        return last

    def validation(self) -> Any:
        """What Keras takes for validation data: it counts steps, whose batches come from the run."""
        if self.task.validation_layout is None:
            return None
        validation, taken = Validation(self.task, self.validation_data()), 0

        def after(logs: Any) -> Any:
            nonlocal taken
            taken = (taken + 1) % validation.num_batches
            return self.validated(logs, last=taken == 0)

        self.model.test_function = self.steps_of(validation.feed, self.model.test_step, after)
        return self.backend.counted(validation.num_batches)

    def validation_data(self) -> DataSet:
        """Of which this worker goes through its share."""
        return self.session.dataset(VALIDATION)

    def keep(self, history: History, **more: Any) -> None:
        """Let the keeper write a checkpoint of this worker's model, besides ``more`` of it."""
        header, arrays = model_to_parts(self.model)
        kept = Kept(
            run=self.task.run,
            order=self.keeper.order(self.num_batches),
            epoch=self.epoch,
            batch=self.batch,
            steps=self.steps,
            header=header,
            arrays=arrays,
            history={name: list(values) for name, values in history.history.items()},
            epochs=list(history.epoch),
            callbacks=states_of(self.callbacks),
            **more,
        )
        self.keeper.keep(kept)

    def trained(self, history: dict[str, list[Any]], epochs: list[int], **more: Any) -> Outcome:
        """What the first worker returns, with ``more`` of it, once its last checkpoint is written."""
        self.keeper.finish()
        header, arrays = model_to_parts(self.model)
        return Outcome(
            header=header,
            arrays=arrays,
            history=history,
            epoch=epochs,
            callbacks=states_of(self.callbacks),
            num_rows=self.session.num_rows,
            **more,
        )

    def taken(self, first: int, stop: int) -> list[Stretch]:
        """Batches ``first`` to ``stop`` (excluded), counted from the first of all epochs, as the ledger counts."""
        found = []
        while first < stop:
            epoch, batch = divmod(first, self.batches_of_data)
            some = min(self.batches_of_data - batch, stop - first)
            found.append(
                Stretch(
                    dataset=0,
                    turn=0,
                    epoch=epoch,
                    batch_size=self.task.batch_size,
                    first=batch,
                    taken=some,
                    done=some,
                )
            )
            first += some
        return found


@contextmanager
def _weights_left_alone(model: Any) -> Iterator[None]:
    """While it lasts, the end of ``fit`` does not put an optimizer's moving averages in place of the weights."""
    optimizer = model.optimizer
    object.__setattr__(optimizer, "finalize_variable_values", lambda _: None)
    try:
        yield
    finally:
        object.__delattr__(optimizer, "finalize_variable_values")
