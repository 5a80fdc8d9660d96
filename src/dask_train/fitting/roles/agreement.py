"""What workers that train one Keras model agree on at each moment of Keras' ``fit``: the sync point of their loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dask_train.collectives import ProcessGroup
from dask_train.fitting.roles.callback_sync import CallbackSync
from dask_train.fitting.roles.control import Control
from dask_train.fitting.roles.watched_numbers import Numbers, WatchedNumbers
from dask_train.fitting.roles.weights import Weights
from dask_train.trainers.common.agreement import GroupAgreement


class CallbackAgreement(GroupAgreement, CallbackSync):
    """The moments of all workers, and the agreement of their training loop.

    At a sync point the flags of the loop travel with what callbacks have decided and changed, in one exchange.

    Parameters
    ----------
    group
        The group.
    control, weights
        What is exchanged, and what is sent where callbacks have set it.
    should_stop
        Whether the run is to end.
    cut_short
        Called on all workers where training stops within an epoch.

    """

    control: Control
    weights: Weights

    def __init__(
        self,
        model: Any,
        group: ProcessGroup,
        control: Control,
        weights: Weights,
        should_stop: Callable[[], bool],
        cut_short: Callable[[], None],
    ) -> None:
        super().__init__(group)
        self.model, self.control, self.weights = model, control, weights
        self._should_stop, self._cut_short = should_stop, cut_short
        self.numbers = WatchedNumbers(model)
        self._unsent_numbers: Numbers = {}  # what callbacks have set that is not sent yet
        self._since_border: dict[str, Any] = {"weights_sent": False, "numbers": {}}
        self._taken_up: dict[str, Any] | None = None

    def flags(self, save: bool, stop: bool) -> tuple[bool, bool]:
        """Return the flags of the first rank, when all have what its callbacks have changed."""
        control = self.control
        control.keep, control.resizes = save, self.resizes
        self.halt(stop)
        self._exchange(new_weights=self._new_weights, new_rates=self._new_rates)
        save, self.resizes = control.keep, control.resizes
        control.keep = control.resizes = False
        return save, control.stop_training

    def pass_on(self, *, new_weights: bool = False, new_rates: bool = True) -> None:
        """Agree on flags and learning rates, then on weights where they were set.

        Learning rates are looked at where they may be new.
        """
        self._exchange(new_weights=new_weights, new_rates=new_rates)
        self.cut_short()

    def _exchange(self, *, new_weights: bool, new_rates: bool) -> None:
        control, model = self.control, self.model
        control.stop_training, control.new_weights = bool(getattr(model, "stop_training", False)), new_weights
        control.stop_evaluating = bool(getattr(model, "stop_evaluating", False))
        control.new_optimizers = new_weights and self.weights.new_optimizers
        control.new_numbers = bool(self._unsent_numbers)
        control.agree(new_rates=new_rates)
        if control.new_numbers:
            numbers, self._unsent_numbers = self.of_first(self._unsent_numbers), {}
            self.numbers.set(numbers)
            self._since_border["numbers"].update(numbers)
        if model.stop_training != control.stop_training:  # Keras' models take long to set an attribute
            model.stop_training = control.stop_training
        if control.stop_evaluating != bool(getattr(model, "stop_evaluating", False)):
            model.stop_evaluating = control.stop_evaluating
        self.stop_here()
        if control.new_weights:
            self._since_border["weights_sent"] = True
            self.weights.send(optimizers=control.new_optimizers)

    def state(self) -> dict[str, Any]:
        """Return what workers agree on at a border, and whether the first one sends weights until the next one."""
        self._since_border = {**self._since_border, "weights_sent": False}
        return {"control": self.control.state(), "since": self._since_border}

    def restore(self, state: dict[str, Any]) -> None:
        """See :meth:`Agreement.restore`; learning rates are set when training has begun here."""
        if self.rank == 0 and state["since"]["weights_sent"]:
            self.loop.start_all_again("worker 0 was lost after its callbacks had set weights")
        self._taken_up, self._since_border = state["control"], state["since"]
        self.numbers.set(self._since_border["numbers"])

    def take_up(self, *, new_weights: bool = False) -> None:
        """See :meth:`CallbackSync.take_up`."""
        if new_weights:
            self.loop.start_all_again("a callback sets weights as training begins, which it has elsewhere")
        assert self._taken_up is not None
        self._unsent_numbers = {}  # what training begins with was set elsewhere, too, perhaps anew since then
        self.numbers.set(self._since_border["numbers"])
        self.control.restore(self._taken_up)

    def give_numbers(self) -> None:
        """See :meth:`CallbackSync.give_numbers`."""
        if self.size > 1:
            self.numbers.check_trainable()
        if numbers := self.numbers.changed():
            self._unsent_numbers.update(numbers)
            self.loop.note_numbers(self.numbers.names(numbers))

    def should_stop(self) -> bool:
        """See :meth:`CallbackSync.should_stop`; the first worker looks, for all."""
        return self.rank == 0 and self._should_stop()

    def cut_short(self) -> None:
        """See :meth:`CallbackSync.cut_short`."""
        if self.control.stop_training and not self.control.epoch_ends:
            self._cut_short()
