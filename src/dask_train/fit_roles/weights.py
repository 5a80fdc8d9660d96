"""Weights on all workers: sent from the first one, and statistics averaged where weights are read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from dask_train.agreement import Replicas
from dask_train.frameworks.keras import state


class WatchedWeights:
    """The weights of a model, to see whether somebody has set them."""

    def __init__(self, model: Any) -> None:
        self._own = list(model.weights)
        self._seen: list[np.ndarray] = []

    def note(self) -> None:
        """Remember the weights; a copy."""
        self._seen = [np.array(value_of(variable)) for variable in self._own]

    def changed(self) -> bool:
        """Whether they are others than those that were noted."""
        pairs = zip(self._own, self._seen, strict=True)
        return any(not np.array_equal(value_of(variable), seen, equal_nan=True) for variable, seen in pairs)


class Weights(WatchedWeights):
    """The variables of one worker's model that all workers have to agree on.

    Parameters
    ----------
    model : keras.Model
        Built, its optimizers, too.

    Notes
    -----
    Seed generators are each worker's own, or the same units would drop out in all shares of a batch.
    """

    def __init__(self, model: Any, replicas: Replicas) -> None:
        super().__init__(model)
        self._model, self._replicas = model, replicas
        self._statistics = statistics_of(model)
        self._channels: dict[str, list[tuple[Any, list[Any]]]] = {}

    def send(self, *, optimizers: bool = False) -> None:
        """Give all workers the weights of the first one; where asked for, what its optimizers hold as well."""
        variables = [*self._own, *(state.optimizer_variables(self._model) if optimizers else ())]
        for channel, some in self._channels_of("all" if optimizers else "weights", variables):
            sent = self._replicas.from_first(channel, [value_of(variable) for variable in some])
            if self._replicas.rank:
                _assign(some, sent)

    def average_statistics(self) -> None:
        """Moving averages, such as those of BatchNormalization, become the means over all workers."""
        for channel, some in self._channels_of("statistics", self._statistics):
            values = [value_of(variable) for variable in some]
            _assign(some, self._replicas.sum(channel, values, 1 / self._replicas.size))

    def statistics(self) -> list[np.ndarray]:
        """A copy of the moving averages of this worker."""
        return [np.array(value_of(variable)) for variable in self._statistics]

    def set_statistics(self, values: list[np.ndarray]) -> None:
        """Set them to what :meth:`statistics` has told."""
        _assign(self._statistics, values)

    def own(self) -> list[list[np.ndarray]]:
        """Of each worker what is its own, seeds and moving averages, in the first worker; all workers ask at once."""
        found = []
        for rank in range(self._replicas.size):
            values: list[np.ndarray] = []
            for channel, some in self._channels_of("own", [*state.seed_states(self._model), *self._statistics]):
                weight = 1.0 if rank == self._replicas.rank else 0.0
                told = self._replicas.sum(channel, [value_of(variable) for variable in some], weight)
                values += [np.array(value) for value in told]
            found.append(values)
        return found

    def set_own(self, found: list[list[np.ndarray]] | None) -> None:
        """Give each worker back what was its own; ``found`` is looked at in the first worker. All workers at once."""
        for rank in range(self._replicas.size):
            waiting = iter(found[rank] if found else [])
            for channel, some in self._channels_of("own", [*state.seed_states(self._model), *self._statistics]):
                values = [next(waiting) if found else value_of(variable) for variable in some]
                told = self._replicas.from_first(channel, values)
                if rank == self._replicas.rank:
                    _assign(some, told)

    def _channels_of(self, key: str, variables: Sequence[Any]) -> list[tuple[Any, list[Any]]]:
        if key not in self._channels:
            by_dtype: dict[np.dtype, list[Any]] = {}
            for variable in variables:
                by_dtype.setdefault(_summed_in(variable), []).append(variable)
            self._channels[key] = [
                (self._replicas.channel([tuple(variable.shape) for variable in some], dtype), some)
                for dtype, some in by_dtype.items()
            ]
        return self._channels[key]


def seeds_of_rank(model: Any, rank: int) -> None:
    """Let the random numbers of a worker be its own; the first one's stay as they are."""
    for variable in state.seed_states(model) if rank else ():
        seed = value_of(variable)
        mixed = np.random.SeedSequence([int(seed.ravel()[0]), rank]).generate_state(1)[0]
        seed = np.array(seed)
        seed.ravel()[0] = mixed % (2**31)
        variable.assign(seed)


def statistics_of(model: Any) -> list[Any]:
    """Numbers that layers update by themselves, unlike weights that are merely frozen."""
    seeds = {id(variable) for variable in state.seed_states(model)}
    found: dict[int, Any] = {}
    for layer in model._flatten_layers():
        for variable in layer._non_trainable_variables:
            if id(variable) not in seeds and "float" in str(variable.dtype):
                found[id(variable)] = variable
    weights = {id(variable) for variable in model.weights}
    return [variable for number, variable in found.items() if number in weights]


def scale_of(optimizer: Any) -> float | None:
    """By what a loss scaler scales the loss now; None without one."""
    return float(value_of(optimizer.dynamic_scale)) if hasattr(optimizer, "inner_optimizer") else None


def _summed_in(variable: Any) -> np.dtype:
    """A dtype in which NumPy adds, and in which values come through unchanged."""
    name = str(variable.dtype)
    if name in ("float64", "float32", "int64", "uint64", "int32", "uint32", "int8", "uint8", "int16", "uint16"):
        return np.dtype(name)
    return np.dtype(np.float64 if name == "bool" else np.float32)


def _assign(variables: Sequence[Any], values: Sequence[np.ndarray]) -> None:
    for variable, value in zip(variables, values, strict=True):
        variable.assign(keras.ops.cast(np.array(value), variable.dtype))


def value_of(variable: Any) -> np.ndarray:
    """A variable's value in a dtype of NumPy's own, perhaps read-only: a snapshot, see :func:`state.as_array`."""
    value = state.as_array(variable)
    return value if value.dtype.isbuiltin == 1 else value.astype(np.float32)
