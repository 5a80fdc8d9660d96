"""What the first worker tells the others between steps, so that what its callbacks decide acts on all at once."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

from dask_train.agreement import Replicas
from dask_train.fit_roles.weights import value_of
from dask_train.frameworks.keras import state

_FLAGS = ("stop_training", "halt", "gather", "keep", "new_weights", "batch_begins", "test_batches")


class Flags:
    """What one worker's callbacks have decided.

    Attributes
    ----------
    stop_training
        Keras' flag: no batch follows.
    halt
        The run is to end: no validation either.
    gather
        Metrics are added up after the next step.
    keep
        A checkpoint is taken now.
    new_weights
        The first worker's weights were changed by something else than a step: they are sent after this.
    epoch_ends
        The step just taken was the last of its epoch; each worker knows by itself.
    batch_begins, test_batches
        Whether a callback acts when a batch begins, or in batches of validation, so that workers agree there, too.
    """

    def __init__(self) -> None:
        for name in _FLAGS:
            setattr(self, name, False)
        self.epoch_ends = False

    stop_training: bool
    halt: bool
    gather: bool
    keep: bool
    new_weights: bool
    batch_begins: bool
    test_batches: bool


class Control(Flags):
    """Flags and learning rates that all workers have after :meth:`agree`, as the first one set them."""

    def __init__(self, model: Any, replicas: Replicas) -> None:
        super().__init__()
        self._replicas = replicas
        optimizers = [state.innermost(optimizer) for optimizer, _ in state.held_optimizers(model)]
        rates = [optimizer._learning_rate for optimizer in optimizers]
        self._rates = [rate for rate in rates if isinstance(rate, keras.Variable)]  # schedules are the same everywhere
        self._channel = replicas.channel([(len(_FLAGS) + len(self._rates),)], np.float64)
        self._values = np.zeros(len(_FLAGS) + len(self._rates))

    def agree(self) -> None:
        """Take over what the first worker has set; learning rates, too."""
        values = self._values
        if self._replicas.rank == 0:
            values[: len(_FLAGS)] = [getattr(self, name) for name in _FLAGS]
            values[len(_FLAGS) :] = [float(value_of(rate)) for rate in self._rates]
        (agreed,) = self._replicas.from_first(self._channel, [values])
        if self._replicas.rank == 0:
            return
        for name, value in zip(_FLAGS, agreed, strict=False):
            setattr(self, name, bool(value))
        for place, rate in enumerate(self._rates, len(_FLAGS)):
            if agreed[place] != values[place]:
                values[place] = agreed[place]
                rate.assign(np.asarray(agreed[place], rate.dtype))
