"""Weights on all workers: sent from the first one, and statistics averaged where weights are read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from dask_train.collectives import ProcessGroup
from dask_train.compat.keras.layers import flatten_layers, own_non_trainable
from dask_train.compat.keras.optimizers import learning_rate_of
from dask_train.keras_models import state
from dask_train.keras_models.held import dtype_of, unknown_variables
from dask_train.keras_models.torch_state import torch_buffers, torch_random


class WatchedWeights:
    """The weights of a model and what its optimizers hold, to see whether they were set.

    Learning rates are left out: they are agreed on by themselves.

    Attributes
    ----------
    new_optimizers
        Whether :meth:`changed` has found something new in optimizers.
    """

    def __init__(self, model: Any) -> None:
        self._own = list(model.weights)
        optimizers = [state.innermost(optimizer) for optimizer, _ in state.held_optimizers(model)]
        rates = {id(learning_rate_of(optimizer, None)) for optimizer in optimizers}
        self._of_optimizers = [one for one in state.optimizer_variables(model) if id(one) not in rates]
        self._seen: list[np.ndarray] = []
        self.new_optimizers = False

    def note(self) -> None:
        """Remember them; a snapshot each, without a copy."""
        self._seen = [value_of(variable) for variable in (*self._own, *self._of_optimizers)]

    def changed(self) -> bool:
        """Return whether they are others than those that were noted, which are forgotten."""
        seen, self._seen = self._seen, []
        count = len(self._own)
        self.new_optimizers = _differ(self._of_optimizers, seen[count:])
        return self.new_optimizers or _differ(self._own, seen[:count])


class Weights(WatchedWeights):
    """The variables of one worker's model that all workers have to agree on.

    Parameters
    ----------
    model : keras.Model
        Built, its optimizers, too.

    Notes
    -----
    Seed generators are each worker's own, or the same units would drop out in all shares of a batch. Variables that
    Keras does not know, such as a ``tf.Variable`` that callbacks set, count as weights.
    """

    def __init__(self, model: Any, group: ProcessGroup) -> None:
        super().__init__(model)
        self._model, self._group = model, group
        unknown = unknown_variables(model)
        self._own += [*unknown, *averaged_buffers(model)]
        alike = {id(v) for each in flatten_layers(model) if synchronizes(each) for v in each.non_trainable_variables}
        self._statistics = [variable for variable in statistics_of(model) if id(variable) not in alike]
        self._statistics += [v for v in unknown if not v.trainable and "float" in dtype_of(v)]
        self._of_keras = {
            id(variable)
            for layer in flatten_layers(model)
            if type(layer).__module__.startswith("keras.")
            for variable in own_non_trainable(layer)
        } | set(map(id, torch_buffers(model)))
        self._channels: dict[str, list[tuple[Any, list[Any]]]] = {}

    def send(self, *, optimizers: bool = False) -> None:
        """Give all workers the weights of the first one; where asked for, what its optimizers hold as well."""
        variables = [*self._own, *(state.optimizer_variables(self._model) if optimizers else ())]
        for channel, some in self._channels_of("all" if optimizers else "weights", variables):
            sent = self._group.broadcast(channel, [value_of(variable) for variable in some])
            if self._group.rank:
                assign(some, sent)

    def average_statistics(self) -> list[str]:
        """Replace moving averages, such as those of BatchNormalization, by their means over all workers.

        Returns
        -------
        list of str
            Names of those that differed, and are of no layer of Keras': they may be something else than averages.
        """
        differed = []
        for channel, some in self._channels_of("statistics", self._statistics):
            mine = [value_of(variable) for variable in some]
            means = [total / self._group.size for total in self._group.sum(channel, mine)]
            for variable, one, mean in zip(some, mine, means, strict=True):
                if id(variable) not in self._of_keras and not np.allclose(
                    one, mean, rtol=1e-3, atol=1e-6, equal_nan=True
                ):
                    differed.append(str(getattr(variable, "path", variable.name)))
            assign(some, means)
        return differed

    @property
    def same(self) -> list[Any]:
        """The variables that are the same in all workers after each step."""
        own = {id(variable) for variable in self._statistics}
        return [variable for variable in self._own if id(variable) not in own]

    def statistics(self) -> list[np.ndarray]:
        """Return a copy of the moving averages of this worker."""
        return [np.array(value_of(variable)) for variable in self._statistics]

    def set_statistics(self, values: list[np.ndarray], *, only_of_keras: bool = False) -> None:
        """Set them to what :meth:`statistics` has returned.

        Parameters
        ----------
        only_of_keras
            Whether those of a user's own layers and models stay as they are. Default: false.
        """
        pairs = [
            pair
            for pair in zip(self._statistics, values, strict=True)
            if not only_of_keras or id(pair[0]) in self._of_keras
        ]
        assign([variable for variable, _ in pairs], [value for _, value in pairs])

    def own(self) -> list[np.ndarray]:
        """Return a copy of what is this worker's own: seeds, moving averages, and torch's random numbers."""
        return [np.array(value_of(variable)) for variable in self.own_variables()]

    def own_variables(self) -> list[Any]:
        """Return the variables of :meth:`own`."""
        return [variable for some in self._own_by_dtype() for variable in some]

    def set_own(self, values: Sequence[np.ndarray]) -> None:
        """Take over what :meth:`own` has returned, on this or another backend.

        Of another backend there may be more, which are left out, or none of torch's random numbers, which continue as
        they are then.
        """
        end = 0
        for some in self._own_by_dtype():
            end += len(some)
            if end <= len(values):
                assign(some, values[end - len(some) : end])

    def passing_variables(self) -> list[Any]:
        """Return what a call of the model may change, besides :meth:`own`: counts, statistics of all workers' rows."""
        own = {id(variable) for variable in self.own_variables()}
        of_layers = [one for layer in flatten_layers(self._model) for one in own_non_trainable(layer)]
        unknown = [one for one in unknown_variables(self._model) if not one.trainable]
        variables_by_id = {id(one): one for one in (*of_layers, *torch_buffers(self._model), *unknown)}
        return [variable for key, variable in variables_by_id.items() if key not in own]

    def fixed_variables(self) -> list[Any]:
        """Return the weights that nothing but an optimizer or a callback is to set."""
        changing = {id(variable) for variable in (*self.own_variables(), *self.passing_variables())}
        return [variable for variable in self._own if id(variable) not in changing]

    def _own_by_dtype(self) -> list[list[Any]]:
        """Return the variables; what only some backends have comes last, and has a dtype of its own."""
        return list(_by_dtype([*state.seed_states(self._model), *self._statistics, *torch_random()]).values())

    def _channels_of(self, key: str, variables: Sequence[Any]) -> list[tuple[Any, list[Any]]]:
        if key not in self._channels:
            self._channels[key] = [
                (self._group.channel([tuple(variable.shape) for variable in some], dtype), some)
                for dtype, some in _by_dtype(variables).items()
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


def check_on_cpu(model: Any) -> None:
    """Check that a model whose lost workers are to be replaced in place lies on CPUs.

    Raises
    ------
    ValueError
        It does not.
    """
    devices = {str(getattr(variable.value, "device", "")).lower() for variable in model.variables}
    if any(kind in device for device in devices for kind in ("cuda", "gpu")):
        raise ValueError(
            "recovery='in_place' is for workers that compute on CPUs, and this one has a GPU, whose random numbers are "
            "in no mirror. Pass gpus=0, or leave recovery= out."
        )


def statistics_of(model: Any) -> list[Any]:
    """Return numbers that layers update by themselves, unlike weights that are merely frozen."""
    seeds = {id(variable) for variable in state.seed_states(model)}
    variables_by_id: dict[int, Any] = {}
    for layer in flatten_layers(model):
        for variable in own_non_trainable(layer):
            if id(variable) not in seeds and "float" in str(variable.dtype):
                variables_by_id[id(variable)] = variable
    weights = {id(variable) for variable in model.weights}
    own = [variable for number, variable in variables_by_id.items() if number in weights]
    return [*own, *averaged_buffers(model)]


def synchronizes(layer: Any) -> bool:
    """Return whether a layer has the same statistics on all workers."""
    return isinstance(layer, keras.layers.BatchNormalization) and layer.synchronized is True


def averaged_buffers(model: Any) -> list[Any]:
    """Return what modules of torch average; they count batches as well, which is each worker's own."""
    return [buffer for buffer in torch_buffers(model) if "float" in buffer.dtype]


def others_of(model: Any) -> list[Any]:
    """Return what neither gradients nor layers change: frozen weights, integers, variables unknown to Keras."""
    known = {id(variable) for variable in (*model.trainable_variables, *statistics_of(model))}
    return [*(variable for variable in model.weights if id(variable) not in known), *unknown_variables(model)]


def scale_of(optimizer: Any) -> float | None:
    """Return the current factor of a loss scaler; None without one."""
    return float(value_of(optimizer.dynamic_scale)) if hasattr(optimizer, "inner_optimizer") else None


def _by_dtype(variables: Sequence[Any]) -> dict[np.dtype, list[Any]]:
    variables_by_dtype: dict[np.dtype, list[Any]] = {}
    for variable in variables:
        variables_by_dtype.setdefault(_summed_in(variable), []).append(variable)
    return variables_by_dtype


def _summed_in(variable: Any) -> np.dtype:
    """Return a dtype in which NumPy adds, and in which values come through unchanged."""
    name = dtype_of(variable)
    if name in ("float64", "float32", "int64", "uint64", "int32", "uint32", "int8", "uint8", "int16", "uint16"):
        return np.dtype(name)
    return np.dtype(np.float64 if name == "bool" else np.float32)


def _differ(variables: Sequence[Any], seen: Sequence[np.ndarray]) -> bool:
    return any(not _same(value_of(variable), before) for variable, before in zip(variables, seen, strict=True))


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    """Return whether two snapshots of a variable are equal; at once where they are the same memory."""
    same_memory = one.__array_interface__["data"] == other.__array_interface__["data"]
    return same_memory or np.array_equal(one, other, equal_nan=one.dtype.kind == "f")


def assign(variables: Sequence[Any], values: Sequence[np.ndarray]) -> None:
    """Let variables have these values."""
    for variable, value in zip(variables, values, strict=True):
        variable.assign(keras.ops.cast(np.array(value), variable.dtype))


def value_of(variable: Any) -> np.ndarray:
    """Return a variable's value in a dtype of NumPy's own, perhaps read-only; see :func:`state.as_array`."""
    value = state.as_array(variable)
    return value if value.dtype.isbuiltin == 1 else value.astype(np.float32)
