"""Gradients summed over all workers, where every optimizer passes them: on entry to its ``apply``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from dask_train.agreement import Replicas
from dask_train.fit_roles.backends import Backend


@dataclass
class Share:
    """This worker's part of the global batch in hand.

    Attributes
    ----------
    weight
        Its rows over those of the global batch; 0 where it has none of them.
    """

    weight: float = 1.0


@contextmanager
def summed_gradients(optimizers: list[Any], replicas: Replicas, backend: Backend, share: Share) -> Iterator[None]:
    """While it lasts, what these optimizers apply is the gradient of the whole global batch, on every worker.

    Parameters
    ----------
    optimizers
        The outermost ones: a loss scaler's ``apply`` is given what is summed, and so skips a step on all workers or on
        none; clipping, accumulation and weight decay are below it as well.

    Notes
    -----
    Each worker's gradient is of the mean over its own rows, so the sum of them times each one's share of the rows is
    that of the mean over all rows. Of embeddings, the rows that workers have looked up are put one after the other.
    Half-precision gradients are summed in float32.
    """
    originals = [optimizer.apply for optimizer in optimizers]
    try:
        for number, (optimizer, original) in enumerate(zip(optimizers, originals, strict=True)):
            object.__setattr__(optimizer, "apply", _Summing(number, original, replicas, backend, share))
        yield
    finally:
        for optimizer in optimizers:
            object.__delattr__(optimizer, "apply")


class _Summing:
    """An optimizer's ``apply`` behind a sum."""

    def __init__(self, number: int, apply: Any, replicas: Replicas, backend: Backend, share: Share) -> None:
        self._apply, self._replicas, self._backend, self._share = apply, replicas, backend, share
        self._channels: dict[Any, Any] = {}
        self._name = f"gradients of optimizer {number}"

    def __call__(self, grads: Any, trainable_variables: Any = None) -> Any:
        grads = list(grads)
        sparse = {place: self._backend.parts_of_sparse(gradient) for place, gradient in enumerate(grads)}
        for place, parts in sparse.items():
            if parts is not None:
                gathered = self._backend.on_host(partial(self._gather, place), parts)
                grads[place] = self._backend.sparse(gathered, grads[place])
        dense = [None if sparse[place] is not None else gradient for place, gradient in enumerate(grads)]
        for dtype, places in _by_dtype(dense).items():
            summed = self._backend.on_host(partial(self._sum, dtype), [grads[place] for place in places])
            for place, tensor in zip(places, summed, strict=True):
                grads[place] = tensor
        return self._apply(grads, trainable_variables)

    def _gather(self, place: int, arrays: list[np.ndarray]) -> list[np.ndarray]:
        """Rows that one worker has looked up, after those of the others: what one process would have for all rows."""
        indices, values = arrays
        weight = self._share.weight
        mine = [indices, values * values.dtype.type(weight)] if weight else [indices[:0], values[:0]]
        return self._replicas.gather((self._name, place), mine)

    def _sum(self, dtype: str, arrays: list[np.ndarray]) -> list[np.ndarray]:
        exact = np.dtype(dtype).itemsize >= 4 and np.dtype(dtype).isbuiltin == 1
        key = (dtype, tuple(array.shape for array in arrays))
        if key not in self._channels:
            shapes = [array.shape for array in arrays]
            self._channels[key] = self._replicas.channel(shapes, dtype if exact else np.float32)
        total = self._replicas.sum(self._channels[key], arrays, self._share.weight)
        return total if exact else [array.astype(dtype) for array in total]


def _by_dtype(grads: list[Any]) -> dict[str, list[int]]:
    """The places of gradients by the name of their dtype, those that are None left out."""
    found: dict[str, list[int]] = {}
    for place, gradient in enumerate(grads):
        if gradient is not None:
            dtype = gradient.dtype
            name = dtype.name if hasattr(dtype, "name") else str(dtype)
            found.setdefault(name, []).append(place)
    return found
