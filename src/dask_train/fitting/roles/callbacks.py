"""Callbacks in the first worker, and the same moments in the others, so that one decides and all act.

Keras' ``fit`` calls a ``CallbackList`` at each moment. The first worker's runs the user's callbacks; then all workers
agree on what they have changed: learning rates, weights, whether to stop. The others' lists do only the latter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

from keras import callbacks as keras_callbacks

from dask_train.compat.keras.compiled import initial_epoch_set
from dask_train.fitting.roles.aside import Aside
from dask_train.fitting.roles.callback_sync import CallbackSync

# Keras' own callbacks that look at nothing of the optimizer but its learning rate, nor at other weights than those
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
    moment
        What all workers do at each moment.
    aside
        What they do with the model by themselves is done there.

    Attributes
    ----------
    epoch
        The one that continues.
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
        aside: Aside,
        **params: Any,
    ) -> None:
        super().__init__(list(callbacks), add_history=True, model=moment.model, **params)
        self._async_train = self._async_test = False  # what they decide is agreed on at once
        self._moment, self._aside = moment, aside
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
        self._callbacks = list(callbacks)
        self._earlier: tuple[Callable[[Any], None], Callable[[], Any]] | None = None
        self.first_batch = 0
        self.opens = self.closes = True

    def resume(self, first_batch: int, follow: Callable[[Any], None], take: Callable[[], Any]) -> None:
        """Resume with that batch when training begins.

        Parameters
        ----------
        first_batch
            Its number in the epoch.
        follow
            Lets Keras' ``History`` continue that of before.
        take
            Lets callbacks hold what those before held.
        """
        self.first_batch, self._earlier = first_batch, (follow, take)

    def on_train_begin(self, logs: Logs = None) -> None:
        if self.opens:
            self._then(self._begun, logs, then=self._moment.take_up if self._moment.loop.begins_later else None)

    def _begun(self, logs: Logs) -> None:
        super().on_train_begin(logs)
        if (epoch := initial_epoch_set(self._moment.model)) is not None:
            raise ValueError(
                f"A callback has set model._initial_epoch to {epoch}, in the first of all "
                "workers. Pass initial_epoch=, or checkpoint= and resume=True, to dt.fit."
            )
        if self._earlier is not None:
            follow, take = self._earlier
            take()
            follow(self._history)  # last, as it may be among the callbacks

    def on_train_end(self, logs: Logs = None) -> None:
        if self.closes:
            self._moment.finish_training()
            self._then(super().on_train_end, logs)

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        self.epoch = epoch
        if self._moment.loop.begins_within_epoch:
            return
        self._moment.control.gather = self._every_batch
        self._then(super().on_epoch_begin, epoch, logs)

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        self._moment.epoch_ends()
        logs = {} if logs is None else logs  # callbacks may add scores
        self._then(super().on_epoch_end, epoch, logs, then=partial(self._moment.epoch_done, logs))
        self.first_batch = 0

    def on_train_batch_begin(self, batch: int, logs: Logs = None) -> None:
        if self._moment.control.batch_begins and not self._moment.loop.is_behind_step:
            self._then(super().on_train_batch_begin, batch + self.first_batch, logs)

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        moment, control = self._moment, self._moment.control
        scores = dict(logs or {}) if control.gather else {}  # else they are of this worker alone
        control.gather = self._every_batch or (moment.report_due and not control.gather)
        if self._every_batch:
            hook, number = super().on_train_batch_end, batch + self.first_batch
            self._then(hook, number, logs, then=partial(moment.step_done, scores))
        else:  # no callback does anything
            moment.step_done(scores, new_rates=False)

    def on_test_begin(self, logs: Logs = None) -> None:
        self._moment.control.testing = True
        self._moment.begin_validation()
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

    def _then(self, hook: Callable[..., None], *args: Any, then: Callable[..., None] | None = None) -> None:
        """Run a hook of all callbacks, then let all workers know what it has changed."""
        looks = bool(self._setters)
        if looks:
            self._moment.weights.note()
            self._moment.numbers.note()
        with self._aside() if self._callbacks else nullcontext():
            hook(*args)
        if looks:
            self._moment.give_numbers()
        (then or self._moment.pass_on)(new_weights=looks and self._moment.weights.changed())


class Follower(keras_callbacks.CallbackList):
    """The same moments in the other workers."""

    def __init__(self, moment: CallbackSync) -> None:
        super().__init__([], add_history=True, model=moment.model)
        self._moment = moment
        self.opens = self.closes = True

    def on_train_begin(self, logs: Logs = None) -> None:  # noqa: ARG002
        if self.opens:
            (self._moment.take_up if self._moment.loop.begins_later else self._moment.pass_on)()

    def on_train_end(self, logs: Logs = None) -> None:  # noqa: ARG002
        if self.closes:
            self._moment.pass_on()

    def _at_every(self, *_: Any, **__: Any) -> None:
        self._moment.pass_on()

    on_test_end = _at_every

    def on_test_begin(self, logs: Logs = None) -> None:  # noqa: ARG002
        self._moment.begin_validation()
        self._moment.pass_on()

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:  # noqa: ARG002
        if not self._moment.loop.begins_within_epoch:
            self._moment.pass_on()

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:  # noqa: ARG002
        self._moment.epoch_done({})

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:  # noqa: ARG002
        self._moment.step_done({})

    def on_train_batch_begin(self, batch: int, logs: Logs = None) -> None:  # noqa: ARG002
        if self._moment.control.batch_begins and not self._moment.loop.is_behind_step:
            self._moment.pass_on()

    def _at_test_batches(self, batch: int, logs: Logs = None) -> None:  # noqa: ARG002
        if self._moment.control.test_batches:
            self._moment.pass_on()

    on_test_batch_begin = on_test_batch_end = _at_test_batches


def _overrides(callback: Any, *names: str) -> bool:
    """Return whether a callback does something at one of these moments."""
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
