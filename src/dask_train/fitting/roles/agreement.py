"""What workers that train one Keras model agree on at each moment of Keras' ``fit``: the sync point of their loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dask_train.collectives import ProcessGroup
from dask_train.fitting.roles.callbacks import CallbackSync
from dask_train.fitting.roles.control import Control
from dask_train.fitting.roles.loop import KerasLoop
from dask_train.fitting.roles.weights import Weights
from dask_train.trainers.common.agreement import GroupAgreement


class CallbackAgreement(GroupAgreement, CallbackSync):
    """The moments of all workers, and the agreement of their training loop.

    At a sync point the flags of the loop travel with what callbacks have decided and changed, in one exchange.

    Parameters
    ----------
    replicas
        The group.
    control, weights
        What is exchanged, and what is sent where callbacks have set it.
    should_stop
        Whether the run is to end.
    cut_short
        Called on all workers where training stops within an epoch.

    Attributes
    ----------
    loop
        The one that agrees here; set before the first moment.
    """

    loop: KerasLoop
    control: Control
    weights: Weights

    def __init__(
        self,
        model: Any,
        replicas: ProcessGroup,
        control: Control,
        weights: Weights,
        should_stop: Callable[[], bool],
        cut_short: Callable[[], None],
    ) -> None:
        super().__init__(replicas)
        self.model, self.control, self.weights = model, control, weights
        self._should_stop, self._cut_short = should_stop, cut_short
        self._new_weights, self._new_rates = False, True

    @property
    def report_due(self) -> bool:
        """See :attr:`CallbackSync.report_due`."""
        return self.loop.report_due

    def flags(self, save: bool, stop: bool) -> tuple[bool, bool]:
        """Return the flags of the first rank, when all have what its callbacks have changed."""
        self.control.keep = save
        self._halt(stop)
        self._exchange(new_weights=self._new_weights, new_rates=self._new_rates)
        save, self.control.keep = self.control.keep, False
        return save, self.control.stop_training

    def pass_on(self, *, new_weights: bool = False, new_rates: bool = True) -> None:
        """Agree on flags and learning rates, then on weights where they were set.

        Learning rates are looked at where they may be new.
        """
        self._exchange(new_weights=new_weights, new_rates=new_rates)
        self._cut_short_here()

    def _exchange(self, *, new_weights: bool, new_rates: bool) -> None:
        control, model = self.control, self.model
        control.stop_training, control.new_weights = bool(getattr(model, "stop_training", False)), new_weights
        control.new_optimizers = new_weights and self.weights.new_optimizers
        control.agree(new_rates=new_rates)
        if model.stop_training != control.stop_training:  # Keras' models take long to set an attribute
            model.stop_training = control.stop_training
        self.stop_here()
        if control.new_weights:
            self.weights.send(optimizers=control.new_optimizers)

    def _cut_short_here(self) -> None:
        """End the epoch where training stops within it; a checkpoint that is taken here has been."""
        if self.control.stop_training and not self.control.epoch_ends:
            self._cut_short()

    def step_done(self, scores: dict[str, Any], *, new_weights: bool = False, new_rates: bool = True) -> None:
        """See :meth:`CallbackSync.step_done`; the sync point of an epoch's last step is that of the epoch."""
        if self.control.epoch_ends:
            self._halt(self.rank == 0 and self._should_stop())
            self.pass_on(new_weights=new_weights, new_rates=new_rates)
        else:
            self._new_weights, self._new_rates = new_weights, new_rates
            self.loop.steps_done(**scores)
            self._cut_short_here()

    def epoch_done(self, epoch: int, scores: dict[str, Any], *, new_weights: bool = False) -> None:  # noqa: ARG002
        """See :meth:`CallbackSync.epoch_done`."""
        self._new_weights, self._new_rates = new_weights, True
        if self.loop.stopped:  # within the epoch, whose sync point is passed
            self.pass_on(new_weights=new_weights)
        self.loop.epoch_done(**scores)

    def epoch_ends(self, epoch: int) -> None:  # noqa: ARG002
        """See :meth:`CallbackSync.epoch_ends`."""
        self.loop.epoch_ends()

    def validated(self) -> None:
        """See :meth:`CallbackSync.validated`."""
        self.loop.note_validated()

    def _halt(self, stop: bool) -> None:
        """Let Keras take no further step, and validate no more, where the run is to end."""
        if stop:
            self.control.halt = self.model.stop_training = True
