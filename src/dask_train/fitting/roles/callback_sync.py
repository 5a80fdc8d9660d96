"""What a worker does at each moment of Keras' ``fit``: there its training loop passes sync points."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from dask_train.compat.keras.compiled import replace_is_validated
from dask_train.fitting.roles.control import Flags
from dask_train.fitting.roles.loop import KerasLoop
from dask_train.fitting.roles.watched_numbers import WatchedNumbers
from dask_train.fitting.roles.weights import WatchedWeights


class CallbackSync(ABC):
    """What a worker does at each moment of Keras' ``fit``.

    Attributes
    ----------
    model, control, weights, numbers
        Of this worker.
    loop
        Whose sync points are passed; set before the first moment.
    begin_validation
        Called when a validation begins.
    """

    model: Any
    control: Flags
    weights: WatchedWeights
    numbers: WatchedNumbers
    loop: KerasLoop
    begin_validation: Callable[[], None] = staticmethod(lambda: None)
    # Of the moment whose sync point the loop passes: as of :meth:`pass_on`.
    _new_weights, _new_rates = False, True

    @abstractmethod
    def should_stop(self) -> bool:
        """Return whether the run is to end, as far as this worker is to look."""

    @abstractmethod
    def pass_on(self, *, new_weights: bool = False, new_rates: bool = True) -> None:
        """Let all workers have what callbacks have changed.

        Parameters
        ----------
        new_weights
            Whether they have set weights, or what optimizers hold. Default: false.
        new_rates
            Whether they may have set learning rates. Default: true.
        """

    @abstractmethod
    def give_numbers(self) -> None:
        """Let all workers have numbers that callbacks have set in attributes, when they agree next; in the first one.

        Raises
        ------
        ValueError
            Other workers can't have what they have set.
        """

    @property
    def report_due(self) -> bool:
        """Return whether scores are to be reported between two steps now."""
        return self.loop.report_due

    def step_done(self, scores: dict[str, Any], *, new_weights: bool = False, new_rates: bool = True) -> None:
        """Do as :meth:`pass_on`, after the steps of one call, with scores over all workers where there are some.

        The sync point of an epoch's last step is that of the epoch.
        """
        if self.control.epoch_ends:
            self.halt(self.should_stop())
            self.pass_on(new_weights=new_weights, new_rates=new_rates)
        else:
            self._new_weights, self._new_rates = new_weights, new_rates
            self.loop.steps_done(**scores)
            self.cut_short()

    def epoch_done(self, scores: dict[str, Any], *, new_weights: bool = False) -> None:
        """Do as :meth:`pass_on`, after an epoch; callbacks have been called."""
        self._new_weights, self._new_rates = new_weights, True
        if self.loop.stopped:  # within the epoch, whose sync point is passed
            self.pass_on(new_weights=new_weights)
        self.loop.epoch_done(**scores)

    def take_up(self, *, new_weights: bool = False) -> None:  # noqa: B027 - only workers that agree can do so
        """Go on in place of a lost worker, as training has begun here now; with the others it has long ago."""

    def epoch_ends(self) -> None:
        """Note that an epoch ends on which no callback has had its say; in the first worker."""
        self.loop.epoch_ends()

    def validated(self) -> None:
        """Note that a validation has ended on which no callback has had its say; in the first worker."""
        self.loop.note_validated()

    def cut_short(self) -> None:  # noqa: B027 - not all have something to do
        """End the epoch where training stops within it; a checkpoint that is taken here has been."""

    def finish_training(self) -> None:  # noqa: B027 - not all have something to do
        """Note that training is over, and ``on_train_end`` comes next; in the first worker."""

    def halt(self, stop: bool) -> None:
        """Let Keras take no further step, and validate no more, where the run is to end."""
        if stop:
            self.control.halt = self.model.stop_training = True

    def stop_here(self) -> None:
        """Let no validation follow where the run is to end."""
        if self.control.halt:
            replace_is_validated(self.model, _never)


def _never(*_: Any) -> bool:
    return False
