"""Losses whose divisor is not the number of rows, exact over all workers.

A worker's gradient counts with its share of the rows, which is right for a mean over rows. A mean over sample weights,
or over the rows that a mask leaves, divides by what only all workers together know; a sum divides by nothing. Keras
reduces all its losses in one function, ``reduce_weighted_values``, and this is that function for replicas: its value
times this worker's part of the divisor over its share of the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import keras
import numpy as np
from keras.src.losses import loss as loss_module

from dask_train.agreement import Replicas
from dask_train.fit_roles.backends import Backend
from dask_train.fit_roles.gradients import Share

_MEANS = ("mean", "sum_over_batch_size")


@contextmanager
def losses_of_all(model: Any, replicas: Replicas, backend: Backend, share: Share) -> Iterator[None]:
    """While it lasts, the losses of this process, and of this model's outputs, are parts of those of all workers."""
    original = loss_module.reduce_weighted_values
    loss_module.reduce_weighted_values = _Reducing(original, replicas, backend, share)
    compiled = [part._compile_loss for part in model._flatten_layers() if getattr(part, "_compile_loss", None)]
    for loss in compiled:
        object.__setattr__(loss, "build", _Building(loss, backend, share))
    try:
        yield
    finally:
        loss_module.reduce_weighted_values = original
        for loss in compiled:
            object.__delattr__(loss, "build")


class _Building:
    """Builds a compiled loss; the metrics that it then has, one an output, count a batch once over all workers.

    Keras gives a batch of unknown size no weight there, so an epoch's loss of an output is the mean over batches.
    """

    def __init__(self, loss: Any, backend: Backend, share: Share) -> None:
        self._loss, self._build, self._backend, self._share = loss, loss.build, backend, share

    def __call__(self, y_true: Any, y_pred: Any) -> None:
        self._build(y_true, y_pred)
        for metric in self._loss.metrics:
            object.__setattr__(metric, "update_state", partial(self._update, metric.update_state))

    def _update(self, update: Callable[..., Any], value: Any, sample_weight: Any = None) -> Any:
        if sample_weight is None:
            (sample_weight,) = self._backend.on_host(self._weight, [keras.ops.cast(1.0, value.dtype)])
        return update(value, sample_weight=sample_weight)

    def _weight(self, arrays: list[np.ndarray]) -> list[np.ndarray]:
        return [np.array(self._share.weight, arrays[0].dtype)]


class _Reducing:
    """Keras' reduction, times what makes it this worker's part of the global one."""

    def __init__(self, original: Callable[..., Any], replicas: Replicas, backend: Backend, share: Share) -> None:
        self._original, self._replicas, self._backend, self._share = original, replicas, backend, share
        self._channel = replicas.channel([()], np.float64)

    def __call__(
        self,
        values: Any,
        sample_weight: Any = None,
        mask: Any = None,
        reduction: str | None = "sum_over_batch_size",
        dtype: Any = None,
    ) -> Any:
        loss = self._original(values, sample_weight=sample_weight, mask=mask, reduction=reduction, dtype=dtype)
        if reduction == "sum":
            (factor,) = self._backend.on_host(self._for_sums, [keras.ops.cast(1.0, loss.dtype)])
        elif (divisor := _divisor(values, sample_weight, mask, reduction)) is not None:
            (factor,) = self._backend.on_host(self._for_means, [keras.ops.cast(divisor, loss.dtype)])
        else:
            return loss
        return loss * factor

    def _for_sums(self, arrays: list[np.ndarray]) -> list[np.ndarray]:
        weight = self._share.weight
        return [np.array(1.0 / weight if weight else 0.0, arrays[0].dtype)]

    def _for_means(self, arrays: list[np.ndarray]) -> list[np.ndarray]:
        (mine,), weight = arrays, self._share.weight
        (total,) = self._replicas.sum(self._channel, [mine], 1.0 if weight else 0.0)
        factor = float(mine) / (float(total) * weight) if weight and total else 0.0
        return [np.array(factor, mine.dtype)]


def _divisor(values: Any, sample_weight: Any, mask: Any, reduction: str | None) -> Any:
    """By what Keras divides where that is not the number of values; None where it is, or nothing is divided."""
    if mask is not None and reduction in _MEANS:
        return keras.ops.sum(keras.ops.cast(mask, "float32"))
    if reduction == "mean_with_sample_weight" and (sample_weight is not None or mask is not None):
        dtype = keras.backend.standardize_dtype(values.dtype)
        weights = loss_module.apply_mask(
            None if sample_weight is None else keras.ops.convert_to_tensor(sample_weight, dtype),
            mask,
            dtype=dtype,
            reduction=reduction,
        )
        values, weights = loss_module.squeeze_or_expand_to_same_rank(values, keras.ops.cast(weights, dtype))
        return keras.ops.sum(weights)
    return None
