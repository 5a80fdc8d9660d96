"""What a worker with parameter servers does at each moment of Keras' ``fit``: it agrees with no other worker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from dask_train.compat.keras.optimizers import learning_rate_of
from dask_train.fitting.roles.callback_sync import CallbackSync
from dask_train.fitting.roles.control import Flags
from dask_train.fitting.roles.pushing import Pushing
from dask_train.fitting.roles.servers import Servers
from dask_train.fitting.roles.watched_numbers import WatchedNumbers
from dask_train.fitting.roles.weights import WatchedWeights, others_of, value_of
from dask_train.keras_models import state
from dask_train.role.session import Session
from dask_train.trainers.common.agreement import Agreement


class ServerAgreement(Agreement, CallbackSync):
    """The moments of one worker, which waits for no other: what the first one's callbacks set goes to the servers.

    Parameters
    ----------
    model : keras.Model
        Built.
    session
        Of this worker.
    servers, pushing
        To whom changes go, and who is informed that they have.
    finish_training
        Called in the first worker when training is over, before ``on_train_end``.

    Attributes
    ----------
    ending
        What callbacks have set since the last step, with the values: what training ends with if no step follows.
    is_alone
        Whether there is no other worker, and none joins later.
    """

    weights: ChangedVariables
    all_reduce_s = waiting_s = 0.0

    def __init__(
        self, model: Any, session: Session, servers: Servers, pushing: Pushing, finish_training: Callable[[], None]
    ) -> None:
        self.rank, self.size, self.is_alone = session.rank, session.size, session.size == 1
        self.model, self.control = model, Flags()
        self.weights = ChangedVariables(model, self.control)
        self.numbers = WatchedNumbers(model)
        self._session, self._servers, self._pushing, self._finish_training = session, servers, pushing, finish_training
        self._rates = [rate for rate in _rates_of(model) if isinstance(rate, keras.Variable)]
        self.note_rates()
        self.ending: list[tuple[Any, np.ndarray]] = []

    def note_rates(self) -> None:
        """Note that servers have the learning rates of this model."""
        self._known_rates = [float(value_of(rate)) for rate in self._rates]

    def should_stop(self) -> bool:
        """See :meth:`CallbackSync.should_stop`; each worker looks for itself."""
        return self._session.should_stop()

    def flags(self, save: bool, stop: bool) -> tuple[bool, bool]:
        """Return this worker's flags, when servers have what its callbacks have changed."""
        self.halt(stop or self.should_stop())
        self.pass_on(new_weights=self._new_weights, new_rates=self._new_rates)
        return save, bool(self.model.stop_training)

    def of_first(self, value: Any) -> Any:
        """Return the value: the first worker tells servers, and the others ask them."""
        return value

    def _gathered(self, what: str, rows: np.ndarray) -> np.ndarray:  # noqa: ARG002
        raise AssertionError(f"workers with parameter servers gather nothing, and are asked for {what}")

    def finish_training(self) -> None:
        """See :meth:`CallbackSync.finish_training`."""
        self._finish_training()

    def pass_on(self, *, new_weights: bool = False, new_rates: bool = True) -> None:
        """See :meth:`CallbackSync.pass_on`."""
        if self.rank == 0:
            self._give(self.weights.found if new_weights else [], self._changed_rates() if new_rates else [])
        self.stop_here()

    def give_numbers(self) -> None:
        """See :meth:`CallbackSync.give_numbers`; numbers are refused where there are other workers."""
        if not self.is_alone:
            self.numbers.check_trainable()
        if not (numbers := self.numbers.changed()):
            return
        if not self.is_alone:
            raise ValueError(
                f"A callback has set {self.numbers.names(numbers)}, which workers with parameter servers do not give "
                "to each other. Keep it in an attribute that is a keras.Variable with trainable=False, and assign to "
                "it; or train without ps=."
            )
        self.loop.note_numbers(self.numbers.names(numbers))

    def _changed_rates(self) -> list[Any]:
        known = self._known_rates
        self.note_rates()
        return [rate for rate, old, new in zip(self._rates, known, self._known_rates, strict=True) if old != new]

    def _give(self, changed: list[Any], rates: list[Any]) -> None:
        if changed or rates:
            self._servers.give([*changed, *rates])
            self._pushing.note()
        if self.model.stop_training and not (self.control.halt or self._session.should_stop()):
            changed, self.ending = self.model.weights, []  # it ends here, whatever others bring by then
        weights = {id(variable) for variable in self.model.weights}
        self.ending += [(variable, value_of(variable)) for variable in changed if id(variable) in weights]


class ChangedVariables(WatchedWeights):
    """What callbacks of the first worker may set: weights, and what optimizers keep.

    Attributes
    ----------
    found
        What they have set, when that was last looked at.

    Notes
    -----
    What is put in place of the weights for a validation, and taken back after it, concerns no other worker.
    """

    def __init__(self, model: Any, flags: Flags) -> None:
        super().__init__(model)
        self._own = [*self._own, *others_of(model), *state.optimizer_variables(model)]
        self._flags, self._is_noted = flags, False
        self.found: list[Any] = []

    def note(self) -> None:
        """See :meth:`WatchedWeights.note`; no copy."""
        if not self._is_noted:
            self._seen = [value_of(variable) for variable in self._own]
        self._is_noted = self._flags.testing

    def changed(self) -> bool:
        """See :meth:`WatchedWeights.changed`; not before the end of a validation."""
        if self._flags.testing:
            return False
        pairs = zip(self._own, self._seen, strict=True)
        unique = {id(one): one for one, seen in pairs if not np.array_equal(value_of(one), seen, equal_nan=True)}
        self.found = list(unique.values())
        return bool(self.found)


def _rates_of(model: Any) -> list[Any]:
    """Return the learning rates of all of its optimizers, and of those that these are made of."""
    outer = [state.innermost(optimizer) for optimizer, _ in state.held_optimizers(model)]
    return [learning_rate_of(each) for one in outer for each in (one, *getattr(one, "optimizers", ()))]
