"""Callbacks in the first worker, and the same moments in the others, so that one decides and all act.

Keras' ``fit`` calls a ``CallbackList`` at each moment. The first worker's runs the user's callbacks; then all workers
agree on what they have changed: learning rates, weights, whether to stop. The others' lists do only the latter.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

from keras import callbacks as keras_callbacks

from dask_train.fitting.roles.aside import Aside
from dask_train.fitting.roles.control import Control, Flags
from dask_train.fitting.roles.weights import WatchedWeights, Weights
from dask_train.trainers.common.score_names import scores_of

# How often scores are told between the ends of epochs, which takes the sum of all workers' metrics.
REPORT_INTERVAL_S = 0.5
# Keras' own callbacks that look neither at the optimizer, but for its learning rate, nor at other weights than those
# that the first worker has computed with.
_LOOKS_AT_LOGS = (
    "CSVLogger",
    "EarlyStopping",
    "History",
    "LearningRateScheduler",
    "ProgbarLogger",
    "ReduceLROnPlateau",
    "RemoteMonitor",
    "TerminateOnNaN",
)
# Keras' own callbacks that set weights; its others do not, so weights are not looked at around them.
_SETS_WEIGHTS = ("EarlyStopping", "SwapEMAWeights", "LambdaCallback")

Logs = dict[str, Any] | None


class Leader(keras_callbacks.CallbackList):
    """The callbacks of the first worker; with :class:`~keras.callbacks.History`.

    Parameters
    ----------
    callbacks
        The user's.
    report
        Called with scores: those of an epoch, or of a moment within one.
    should_stop
        Whether the run is to end.
    keep_due
        Whether a checkpoint is due; asked after each step but the last of an epoch, and after each epoch, with whether
        it is one.
    epoch_ends
        Called with the number of an epoch when its last step was taken, before callbacks have their say on it.
    epoch_over
        Called with the logs of an epoch when all callbacks have had their say on it.
    aside
        What they do with the model by themselves is done there.

    Attributes
    ----------
    epoch
        The one that goes on.
    first_batch
        The number of the first batch of this epoch, where it was begun elsewhere.
    opens, closes
        Whether the next call of Keras' ``fit`` is the first, and the last, of what the user sees as one.
    """

    def __init__(
        self,
        callbacks: Sequence[Any],
        moment: CallbackSync,
        *,
        report: Callable[..., None],
        should_stop: Callable[[], bool],
        keep_due: Callable[[bool], bool],
        epoch_ends: Callable[[int], None],
        epoch_over: Callable[[dict[str, Any]], None],
        aside: Aside,
        **params: Any,
    ) -> None:
        super().__init__(list(callbacks), add_history=True, model=moment.model, **params)
        self._async_train = self._async_test = False  # what they decide is agreed on at once
        self._moment, self._report, self._should_stop, self._keep_due = moment, report, should_stop, keep_due
        self._epoch_ends, self._epoch_over, self._aside = epoch_ends, epoch_over, aside
        self._every_batch = any(_overrides(one, "on_train_batch_end", "on_batch_end") for one in callbacks)
        moment.control.batch_begins = any(
            _overrides(one, "on_train_batch_begin", "on_batch_begin") for one in callbacks
        )
        moment.control.test_batches = any(
            _overrides(one, "on_test_batch_begin", "on_test_batch_end") for one in callbacks
        )
        moment.control.looks_at_epochs = any(_may_look(one) for one in callbacks)
        moment.control.looks_at_batches = any(_may_look_at_batches(one) for one in callbacks)
        self._setters = [one for one in callbacks if _may_set_weights(one)]
        self.epoch = 0
        self._told = time.monotonic()
        self._callbacks = list(callbacks)
        self._earlier: tuple[dict[str, list[Any]], list[int], Callable[[], Any]] | None = None
        self.first_batch = 0
        self.opens = self.closes = True

    def resume(
        self, first_batch: int, history: dict[str, list[Any]], epochs: list[int], take: Callable[[], Any]
    ) -> None:
        """Resume with that batch and that history; ``take`` lets callbacks hold what those before held."""
        self.first_batch, self._earlier = first_batch, (history, epochs, take)

    def on_train_begin(self, logs: Logs = None) -> None:
        if self.opens:
            self._then(self._begun, logs)

    def _begun(self, logs: Logs) -> None:
        super().on_train_begin(logs)
        if self._moment.model._initial_epoch is not None:
            raise ValueError(
                f"A callback has set model._initial_epoch to {self._moment.model._initial_epoch}, in the first of all "
                "workers. Pass initial_epoch=, or checkpoint= and resume=True, to dt.fit."
            )
        if self._earlier is not None:
            self._history.history, self._history.epoch, take = self._earlier
            take()

    def on_train_end(self, logs: Logs = None) -> None:
        if self.closes:
            self._moment.settle()
            self._then(super().on_train_end, logs)

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        self.epoch = epoch
        self._moment.control.gather = self._every_batch
        self._then(super().on_epoch_begin, epoch, logs)

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        def told(epoch: int, logs: Logs) -> None:
            super(Leader, self).on_epoch_end(epoch, logs)
            self._report(epoch=epoch, num_steps=self.params["steps"], **scores_of(logs))
            self._told = time.monotonic()
            self.first_batch = 0
            self._moment.control.keep = self._keep_due(True)
            self._epoch_over(dict(logs or {}))

        self._epoch_ends(epoch)
        self._then(told, epoch, logs)

    def on_train_batch_begin(self, batch: int, logs: Logs = None) -> None:
        if self._moment.control.batch_begins:
            self._then(super().on_train_batch_begin, batch + self.first_batch, logs)

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        moment, control = self._moment, self._moment.control
        if control.gather:  # else the logs are of this worker alone, and nobody asks for them
            now = time.monotonic()
            if now - self._told >= REPORT_INTERVAL_S:
                self._told = now
                num_steps = self.params["steps"]  # the last call of steps_per_execution may be counted as a whole one
                step = min(batch + self.first_batch + 1, num_steps)
                self._report(epoch=self.epoch, step=step, num_steps=num_steps, **scores_of(logs))
        control.gather = self._every_batch or time.monotonic() - self._told >= REPORT_INTERVAL_S
        control.keep = not control.epoch_ends and self._keep_due(False)
        control.halt = control.halt or self._should_stop()
        if control.halt:
            moment.model.stop_training = True
        if self._every_batch:
            self._then(super().on_train_batch_end, batch + self.first_batch, logs)
        else:  # no callback does anything
            moment.pass_on(new_rates=False)

    def on_test_begin(self, logs: Logs = None) -> None:
        self._moment.control.testing = True
        self._then(super().on_test_begin, logs)

    def on_test_end(self, logs: Logs = None) -> None:
        self._moment.control.testing = False
        self._moment.validated()
        self._then(super().on_test_end, logs)

    def on_test_batch_begin(self, batch: int, logs: Logs = None) -> None:
        if self._moment.control.test_batches:
            self._then(super().on_test_batch_begin, batch, logs)

    def on_test_batch_end(self, batch: int, logs: Logs = None) -> None:
        if self._moment.control.test_batches:
            self._then(super().on_test_batch_end, batch, logs)

    def _then(self, hook: Callable[..., None], *args: Any) -> None:
        """Run a hook of all callbacks, then let all workers know what it has changed."""
        looks = bool(self._setters)
        if looks:
            self._moment.weights.note()
        with self._aside() if self._callbacks else nullcontext():
            hook(*args)
        self._moment.pass_on(new_weights=looks and self._moment.weights.changed())


class Follower(keras_callbacks.CallbackList):
    """The same moments in the other workers."""

    def __init__(self, moment: CallbackSync) -> None:
        super().__init__([], add_history=True, model=moment.model)
        self._moment = moment
        self.opens = self.closes = True

    def on_train_begin(self, logs: Logs = None) -> None:  # noqa: ARG002
        if self.opens:
            self._moment.pass_on()

    def on_train_end(self, logs: Logs = None) -> None:  # noqa: ARG002
        if self.closes:
            self._moment.pass_on()

    def _at_every(self, *_: Any, **__: Any) -> None:
        self._moment.pass_on()

    on_epoch_begin = on_epoch_end = on_train_batch_end = on_test_begin = on_test_end = _at_every

    def on_train_batch_begin(self, batch: int, logs: Logs = None) -> None:  # noqa: ARG002
        if self._moment.control.batch_begins:
            self._moment.pass_on()

    def _at_test_batches(self, batch: int, logs: Logs = None) -> None:  # noqa: ARG002
        if self._moment.control.test_batches:
            self._moment.pass_on()

    on_test_batch_begin = on_test_batch_end = _at_test_batches


class CallbackSync:
    """What all workers do at each moment.

    Parameters
    ----------
    cut_short
        Called on all workers where training stops within an epoch.
    keep
        Takes a checkpoint, on all workers.
    """

    control: Flags
    weights: WatchedWeights

    def __init__(
        self, model: Any, control: Control, weights: Weights, cut_short: Callable[[], None], keep: Callable[[], None]
    ) -> None:
        self.model, self.control, self.weights = model, control, weights
        self._agree, self._send, self._cut_short, self._keep = control.agree, weights.send, cut_short, keep

    def pass_on(self, *, new_weights: bool = False, new_rates: bool = True) -> None:
        """Agree on flags and learning rates, then on weights where they were set, then keep a checkpoint if due.

        Learning rates are looked at where they may be new.
        """
        control, model = self.control, self.model
        control.stop_training, control.new_weights = bool(getattr(model, "stop_training", False)), new_weights
        control.new_optimizers = new_weights and self.weights.new_optimizers
        self._agree(new_rates=new_rates)
        if model.stop_training != control.stop_training:  # Keras' models take long to set an attribute
            model.stop_training = control.stop_training
        self.stop_here()
        if control.new_weights:
            self._send(optimizers=control.new_optimizers)
        if control.stop_training and not control.epoch_ends:
            self._cut_short()
        if control.keep:
            control.keep = False
            self._keep()

    def settle(self) -> None:
        """Training is over, and ``on_train_end`` comes next."""

    def validated(self) -> None:
        """A validation has ended, and no callback has had its say on it; in the first worker."""

    def stop_here(self) -> None:
        """Let no validation follow where the run is to end."""
        if self.control.halt:
            self.model._should_eval = _never


def _never(*_: Any) -> bool:
    return False


def _overrides(callback: Any, *names: str) -> bool:
    """Whether a callback does something at one of these moments."""
    return any(
        getattr(type(callback), name, None) is not getattr(keras_callbacks.Callback, name) or name in vars(callback)
        for name in names
    )


def _may_set_weights(callback: Any) -> bool:
    cls = type(callback)
    return not cls.__module__.startswith("keras.") or cls.__name__ in _SETS_WEIGHTS


def _may_look(callback: Any) -> bool:
    cls = type(callback)
    return not cls.__module__.startswith("keras.") or cls.__name__ not in _LOOKS_AT_LOGS


def _may_look_at_batches(callback: Any) -> bool:
    cls, by_batch = type(callback), ("on_train_batch_begin", "on_train_batch_end", "on_batch_begin", "on_batch_end")
    if not _may_look(callback) or not _overrides(callback, *by_batch):
        return False
    is_keras_own = cls.__module__.startswith("keras.")
    if is_keras_own and cls.__name__ == "ModelCheckpoint":
        return bool(callback.save_freq != "epoch")
    return not (is_keras_own and cls.__name__ == "TensorBoard")  # which writes logs there
