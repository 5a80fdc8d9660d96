"""What the first worker tells the others between steps, so that what its callbacks decide acts on all at once."""

from __future__ import annotations

import itertools
from typing import Any

import keras
import numpy as np

from dask_train.collectives import ProcessGroup
from dask_train.compat.keras.optimizers import learning_rate_of
from dask_train.fitting.roles.weights import value_of
from dask_train.keras_models import state

_FLAGS = (
    "stop_training",
    "stop_evaluating",
    "halt",
    "gather",
    "keep",
    "resizes",
    "new_weights",
    "new_optimizers",
    "new_numbers",
    "batch_begins",
    "test_batches",
)


class Flags:
    """What one worker's callbacks have decided.

    Attributes
    ----------
    stop_training
        Keras' flag: no batch follows.
    stop_evaluating
        Keras' flag: no batch of this validation follows.
    halt
        The run is to end: no validation either.
    gather
        Metrics are added up after the next step.
    keep
        A checkpoint is taken now.
    resizes
        The number of workers changes now.
    new_weights, new_optimizers
        The first worker's weights, or what its optimizers hold, were changed by something else than a step: the weights
        are sent after this, and what optimizers hold in the latter case.
    new_numbers
        The first worker's callbacks have set numbers in attributes, which are sent after this.
    epoch_ends
        The step just taken was the last of its epoch; each worker knows by itself.
    testing
        A validation continues.
    looks_at_epochs, looks_at_batches
        Whether a callback may look at the optimizer, or at all weights: between epochs, or at batches.
    batch_begins, test_batches
        Whether a callback acts when a batch begins, or in batches of validation, so that workers agree there, too.
    """

    def __init__(self) -> None:
        for name in _FLAGS:
            setattr(self, name, False)
        self.epoch_ends = self.testing = self.looks_at_epochs = self.looks_at_batches = False

    stop_training: bool
    stop_evaluating: bool
    halt: bool
    gather: bool
    keep: bool
    resizes: bool
    new_weights: bool
    new_optimizers: bool
    new_numbers: bool
    batch_begins: bool
    test_batches: bool


class Control(Flags):
    """Flags and learning rates that all workers have after :meth:`agree`, as the first one set them."""

    def __init__(self, model: Any, group: ProcessGroup) -> None:
        super().__init__()
        self._group = group
        optimizers = [state.innermost(optimizer) for optimizer, _ in state.held_optimizers(model)]
        rates = [learning_rate_of(optimizer) for optimizer in optimizers]
        self._rates = [rate for rate in rates if isinstance(rate, keras.Variable)]  # schedules are the same everywhere
        self._values = np.zeros(len(_FLAGS) + len(self._rates))
        # Others may still read the last message in one while the first worker writes the next in the other.
        self._channels = itertools.cycle([group.channel([self._values.shape], np.float64) for _ in range(2)])

    def agree(self, *, new_rates: bool = True) -> None:
        """Take over what the first worker has set; learning rates, too, where it says that they may be new."""
        if self._group.size == 1:
            return
        values, channel = self._values, next(self._channels)
        if self._group.rank == 0:
            values[: len(_FLAGS)] = [getattr(self, name) for name in _FLAGS]
            if new_rates:
                values[len(_FLAGS) :] = [float(value_of(rate)) for rate in self._rates]
        places = [slice(len(values)), *[slice(0)] * (self._group.size - 1)]
        # The first worker reads as well: where it has taken a lost one's place, that one's word counts.
        (agreed,) = self._group.exchange(channel, values[places[self._group.rank]], places)
        for name, value in zip(_FLAGS, agreed, strict=False):
            setattr(self, name, bool(value))
        for place, rate in enumerate(self._rates, len(_FLAGS)):
            if agreed[place] != values[place]:
                values[place] = agreed[place]
                rate.assign(np.asarray(agreed[place], rate.dtype))

    def state(self) -> dict[str, Any]:
        """Return what all workers have agreed on last, for one that takes the place of a lost one."""
        return {"flags": {name: getattr(self, name) for name in _FLAGS}, "rates": self._values[len(_FLAGS) :].copy()}

    def restore(self, state: dict[str, Any]) -> None:
        """Take over what the others have agreed on."""
        for name, value in state["flags"].items():
            setattr(self, name, value)
        self._values[len(_FLAGS) :] = state["rates"]
        for rate, value in zip(self._rates, state["rates"], strict=True):
            rate.assign(np.asarray(value, rate.dtype))
