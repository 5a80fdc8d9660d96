"""Gradients summed over all workers, where every optimizer passes them: on entry to its ``apply``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import keras
import numpy as np

from dask_train.collectives import ProcessGroup
from dask_train.compat.keras.optimizers import step_count
from dask_train.fitting.backends import Backend, Slices
from dask_train.fitting.roles.applying import ApplyLast, at_every_apply
from dask_train.fitting.roles.tried_exchanges import TriedExchanges


class RowFraction:
    """This worker's part of the global batch in hand.

    Attributes
    ----------
    weight
        Its rows over those of the global batch; 0 if it has none of them. Set for each batch, once.
    number
        Of the batch: how often that was.
    rows
        How many go into the step: one where it has none of the batch.
    global_rows
        How many the global batch has.
    set_back
        Undoes what a placeholder row has added to metrics; None in a step with rows of this worker.
    trial
        What plays the other workers in a step that is tried; None in any other step.
    optimizers
        By their ``id``, the optimizers that steps have applied so far, also those that the model doesn't hold.
    """

    set_back: Callable[[], None] | None = None
    trial: TriedExchanges | None = None

    def __init__(self) -> None:
        self._weight, self.number, self.rows, self.global_rows = 1.0, 0, 0, 0
        self._gathered_in = 0
        self.optimizers: dict[int, Any] = {}

    @property
    def weight(self) -> float:
        """Return the weight of this worker's gradients in the sum."""
        return self._weight

    @weight.setter
    def weight(self, weight: float) -> None:
        self._weight, self.number = weight, self.number + 1

    def note_gathered(self) -> None:
        """Note that the step in hand has gathered rows of all workers."""
        self._gathered_in = self.number

    def set(self, rows: int, global_rows: int) -> None:
        """Let that many rows of a global batch be this worker's; with none it goes through the step with one row."""
        self.global_rows = global_rows
        self.weight, self.rows = rows / global_rows, max(1, rows)

    @property
    def is_gathered(self) -> bool:
        """Return whether the current step has gathered rows of all workers so far."""
        return self.number > 0 and self._gathered_in == self.number

    @property
    def has_gathered(self) -> bool:
        """Return whether any step so far has gathered rows of all workers; a graph notes it when it is made."""
        return self._gathered_in > 0


@contextmanager
def summed_gradients(
    group: ProcessGroup, backend: Backend, share: RowFraction, last: ApplyLast | None = None, *, rounds: bool = False
) -> Iterator[None]:
    """While it lasts, what optimizers apply is the gradient of the whole global batch, on every worker.

    Parameters
    ----------
    group, backend, share
        Of this worker.
    last
        What puts off sums and optimizers to the end of a step. Default: they come where the step has them.
    rounds
        Whether gradients that are summed in float32 travel between hosts as bfloat16; slices travel as they are.
        Default: false.

    Notes
    -----
    A loss scaler is given what is summed, and so skips a step on all workers or on none; clipping, accumulation and
    weight decay are below it as well. Each worker's gradient is of the mean over its own rows, so the sum of them times
    each one's share of the rows is that of the mean over all rows. Half-precision gradients are summed in float32.

    Slices of embeddings are what they would be in one process, since optimizers treat each slice by itself (Adam
    squares the slices of a row that was looked up twice one by one): of rows that are looked up for each row of the
    batch, those of all workers come one after the other; what is looked up once a batch, such as positions, is summed.
    """
    summing = _Summing(group, backend, share, at_once=last is not None, rounds=rounds)

    def summed(optimizer: Any, grads: list[Any], variables: list[Any], go_on: Callable[[Sequence[Any]], Any]) -> Any:
        share.optimizers[id(optimizer)] = optimizer
        if share.trial is not None and backend.may_lack_gradients:  # a graph applies zeros, which is undone
            go_on = lambda _: step_count(optimizer)  # noqa: E731
        if last is not None:
            return last.put_off(lambda: summing(grads, variables, go_on))
        return summing(grads, variables, go_on)

    with at_every_apply(summed):
        yield


# Of gradients; those that are sparse count _SPARSE more in what workers tell each other.
_DTYPES = ("float16", "bfloat16", "float32", "float64")
_SPARSE = len(_DTYPES)


class _Summing:
    """Sums the gradients that go into an ``apply``; ``at_once``, where none is applied before all are summed."""

    def __init__(
        self,
        group: ProcessGroup,
        backend: Backend,
        share: RowFraction,
        *,
        at_once: bool = False,
        rounds: bool = False,
    ) -> None:
        self._group, self._backend, self._share = group, backend, share
        self._at_once, self._rounds = at_once, rounds
        self._channels: dict[Any, Any] = {}
        self._summed_in: dict[Any, int] = {}  # by channel: the batch in which it was last used

    def __call__(self, grads: list[Any], variables: list[Any], go_on: Callable[[Sequence[Any]], Any]) -> Any:
        grads = self._completed(grads, variables) if self._backend.may_lack_gradients else list(grads)
        sparse = {place: pieces for place, one in enumerate(grads) if (pieces := self._backend.slices_of(one))}
        for place, pieces in sparse.items():
            for number, piece in enumerate(pieces):
                if not piece.alike:
                    function = partial(self._slices, (place, number), piece)
                    piece.indices, piece.values = self._backend.on_host(function, [piece.indices, piece.values])
        dense: dict[Any, Any] = {
            (place, None): one for place, one in enumerate(grads) if one is not None and place not in sparse
        }
        for place, pieces in sparse.items():
            dense |= {(place, number): piece.values for number, piece in enumerate(pieces) if piece.alike}
        kept_keys: set[Any] = set()
        summed = self._summed(dense, kept_keys)
        for (place, number), tensor in summed.items():
            if number is None:
                grads[place] = tensor
            else:
                sparse[place][number].values = tensor
        for place, pieces in sparse.items():
            grads[place] = self._backend.sparse(pieces, grads[place])
        with self._backend.after(grads) if self._at_once else nullcontext():
            result = go_on(grads)
        kept_keys.update(key for key, tensor in summed.items() if self._backend.may_be_kept(tensor))
        return result

    def _completed(self, grads: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        """Zeros where only other workers have a gradient, of the kind that theirs is, so that all sum the same.

        None if no worker has one: then an optimizer skips a variable. A worker without rows has none. In a step
        that is tried all have one.

        Raises
        ------
        ValueError
            Gradients of a variable are of several kinds.
        """
        if self._share.trial is not None:
            pairs = zip(grads, variables, strict=True)
            return [keras.ops.zeros_like(variable) if one is None else one for one, variable in pairs]
        kinds = np.array([self._kind(one) if self._share.weight else 0.0 for one in grads])
        channel = self._channel(("kinds", len(kinds)), [kinds.shape] * 2, np.float64)
        extremes = self._group.combine(channel, [kinds, np.where(kinds, -kinds, -np.inf)], np.maximum)
        completed_grads = []
        for one, variable, mine, most, least in zip(grads, variables, kinds, extremes[0], -extremes[1], strict=True):
            if most not in (0, least):
                raise ValueError(
                    f"The gradient of {variable.path!r} is {_named(most)} on one worker and {_named(least)} on another "
                    "one, which can't be summed. Make it of one kind whatever a batch holds, or pass workers=1."
                )
            gradient = one if mine or self._kind(one) == most else None  # without rows it weighs nothing
            completed_grads.append(self._zeros(variable, int(most)) if gradient is None and most else gradient)
        return completed_grads

    def _kind(self, gradient: Any) -> float:
        """Return a number for a gradient's dtype and whether it is sparse; 0 for none."""
        if gradient is None:
            return 0.0
        number = 1.0 + _DTYPES.index(keras.backend.standardize_dtype(gradient.dtype))
        return number + _SPARSE if self._backend.slices_of(gradient) else number

    def _zeros(self, variable: Any, kind: int) -> Any:
        dtype = _DTYPES[(kind - 1) % _SPARSE]
        if kind <= _SPARSE:
            return keras.ops.zeros(variable.shape, dtype)
        none = keras.ops.zeros((0,), "int64"), keras.ops.zeros((0, *variable.shape[1:]), dtype)
        return self._backend.sparse([Slices(*none, alike=False)], variable)

    def _channel(self, key: Any, shapes: Sequence[tuple[int, ...]], dtype: Any, *, rounds: bool = False) -> Any:
        if key not in self._channels:
            self._channels[key] = self._group.channel(shapes, dtype, rounds=rounds)
        return self._channels[key]

    def _summed(self, tensors: dict[Any, Any], kept_keys: set[Any]) -> dict[Any, Any]:
        """Sum each over all workers; copies of those of ``kept_keys``, which are known when it is run."""
        sums_by_key: dict[Any, Any] = {}
        for dtype, keys in _by_dtype(tensors).items():
            function = partial(self._sum, dtype, keys, kept_keys)
            sums = self._backend.on_host(function, [tensors[key] for key in keys])
            sums_by_key.update(zip(keys, sums, strict=True))
        return sums_by_key

    def _sum(self, dtype: str, keys: list[Any], kept_keys: set[Any], arrays: list[np.ndarray]) -> list[np.ndarray]:
        if self._share.trial is not None:
            self._share.trial.gradients(arrays, self._share.weight)
            return [np.zeros_like(array) for array in arrays]
        exact = np.dtype(dtype).itemsize >= 4 and np.dtype(dtype).isbuiltin == 1
        shapes = tuple(array.shape for array in arrays)
        # What is applied may still be read from the memory of a sum when the same step comes to another one like it.
        again = self._summed_in.get((dtype, shapes)) == self._share.number
        self._summed_in[dtype, shapes] = self._share.number
        key = (dtype, shapes, again)
        summed_in = np.dtype(dtype) if exact else np.dtype(np.float32)
        channel = self._channel(key, shapes, summed_in, rounds=self._rounds and summed_in == np.float32)
        total = self._group.sum(channel, arrays, self._share.weight)
        if not exact:
            return [array.astype(dtype) for array in total]
        return [array.copy() if again or key in kept_keys else array for key, array in zip(keys, total, strict=True)]

    def _slices(self, key: Any, piece: Slices, arrays: list[np.ndarray]) -> list[np.ndarray]:
        """Return a worker's slices as one process would have them for all rows."""
        indices, values = arrays
        weight = self._share.weight
        if self._share.trial is not None:
            self._share.trial.slices(indices, values, weight)
            return [indices, np.zeros_like(values)]
        key = (key, indices.dtype.str, values.dtype.str, values.shape[1:])
        if piece.alike is None:
            (everyones,) = self._group.gather((key, "looked up"), [indices])
            by_worker = everyones.reshape(self._group.size, -1) if not len(everyones) % self._group.size else None
            if by_worker is not None and (by_worker == by_worker[0]).all():
                return [indices, self._sum(values.dtype.name, [key], {key}, [values])[0]]
        mine = [indices, values * values.dtype.type(weight)] if weight else [indices[:0], values[:0]]
        indices, values = self._group.gather(key, mine)
        return _added_up(indices, values) if piece.distinct else [indices, values]


def _added_up(indices: np.ndarray, values: np.ndarray) -> list[np.ndarray]:
    """Return each index once, with the sum of its values."""
    distinct, places = np.unique(indices, return_inverse=True)
    total = np.zeros((len(distinct), *values.shape[1:]), values.dtype)
    np.add.at(total, places, values)
    return [distinct, total]


def _named(kind: float) -> str:
    """Return what a gradient of that kind is."""
    return f"{'sparse' if kind > _SPARSE else 'dense'} in {_DTYPES[(int(kind) - 1) % _SPARSE]}"


def _by_dtype(tensors: dict[Any, Any]) -> dict[str, list[Any]]:
    """Return the keys of tensors by the name of their dtype."""
    keys_by_dtype: dict[str, list[Any]] = {}
    for key, tensor in tensors.items():
        keys_by_dtype.setdefault(keras.backend.standardize_dtype(tensor.dtype), []).append(key)
    return keys_by_dtype
