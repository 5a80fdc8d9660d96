"""Losses whose divisor is not the number of rows, exact over all workers.

A worker's gradient counts with its share of the rows, which is right for a mean over rows. A mean over sample weights,
or over the rows that a mask leaves, divides by a number that only all workers together know; a sum divides by nothing.
Keras reduces all its losses in one function, ``reduce_weighted_values``, and this is that function for replicas: its
value times this worker's part of the divisor over its share of the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import keras
import numpy as np

from dask_train.collectives import ProcessGroup
from dask_train.compat.keras.internals import loss_module
from dask_train.compat.keras.patches import additional_losses_by
from dask_train.fitting.backends import Backend
from dask_train.fitting.roles.aside import is_aside
from dask_train.fitting.roles.gradients import RowFraction

_MEANS = ("mean", "sum_over_batch_size")


@contextmanager
def losses_of_all(group: ProcessGroup, backend: Backend, share: RowFraction) -> Iterator[None]:
    """While it lasts, the losses of this process are parts of those of all workers."""
    original = loss_module.reduce_weighted_values
    reducing = loss_module.reduce_weighted_values = _Reducing(original, group, backend, share)

    def aggregate(model: Any, original: Callable[..., Any], loss: Any) -> Any:
        """Return what Keras makes of an ``add_loss``, the sum of its values, where they are of rows of the batch."""
        total = original(model, loss)
        return reducing.part_of_sum(total) if reducing.is_by_row(loss) else total

    try:
        with additional_losses_by(aggregate), backend.sums_multiplied(reducing.factor_of_sums, lambda: share.rows):
            yield
    finally:
        loss_module.reduce_weighted_values = original


class _Reducing:
    """Keras' reduction, times what makes it this worker's part of the global one."""

    def __init__(self, original: Callable[..., Any], group: ProcessGroup, backend: Backend, share: RowFraction) -> None:
        self._original, self._group, self._backend, self._share = original, group, backend, share
        self._channel = group.channel([()], np.float64)

    def __call__(
        self,
        values: Any,
        sample_weight: Any = None,
        mask: Any = None,
        reduction: str | None = "sum_over_batch_size",
        dtype: Any = None,
    ) -> Any:
        weight = _unshared(sample_weight, dtype) if mask is not None else sample_weight
        loss = self._original(values, sample_weight=weight, mask=mask, reduction=reduction, dtype=dtype)
        if sample_weight is None and mask is None and len(getattr(values, "shape", ())) == 0:
            return loss  # the user's own function has reduced it
        if reduction in (None, "none") and self._backend.graphs_tell_more and not is_aside():
            return loss  # values by row, of which the graph tells what the step makes
        return self._backend.mark_multiplied(
            loss if is_aside() else self._part(loss, values, sample_weight, mask, reduction)
        )

    def _part(self, loss: Any, values: Any, sample_weight: Any, mask: Any, reduction: str | None) -> Any:
        if reduction == "sum":
            if self._share.is_gathered:
                raise ValueError(
                    "A loss with reduction='sum' comes after dt.keras.global_batch in a step, and may be one of the "
                    "rows of all workers, or of one's. Take the mean over rows, or multiply the mean with the number "
                    "of rows."
                )
            factor = self.factor_of_sums(loss.dtype)
        elif (divisor := _divisor(values, sample_weight, mask, reduction)) is not None:
            (factor,) = self._backend.on_host(self._for_means, [keras.ops.cast(divisor, loss.dtype)])
        else:
            return loss
        return loss * factor

    def is_by_row(self, loss: Any) -> bool:
        """Return whether a loss has values by row, which are to be multiplied here."""
        return self._backend.is_by_row(loss, self._share.rows)

    def part_of_sum(self, total: Any) -> Any:
        """Return a sum over this worker's rows as the part of the sum over all rows that it is."""
        return self._backend.mark_multiplied(total * self.factor_of_sums(total.dtype))

    def factor_of_sums(self, dtype: Any) -> Any:
        """Return the factor by which a sum over this worker's rows counts more than a mean over them."""
        one = keras.ops.cast(1.0, dtype)
        if is_aside():
            return one
        (factor,) = self._backend.on_host(self._for_sums, [one])
        return factor

    def _for_sums(self, arrays: list[np.ndarray]) -> list[np.ndarray]:
        weight = self._share.weight
        return [np.array(1.0 / weight if weight else 0.0, arrays[0].dtype)]

    def _for_means(self, arrays: list[np.ndarray]) -> list[np.ndarray]:
        (mine,), weight = arrays, self._share.weight
        if self._share.trial is not None:
            (total,) = self._share.trial.sum([mine], 1.0)
        else:
            (total,) = self._group.sum(self._channel, [mine], 1.0 if weight else 0.0)
        factor = float(mine) / (float(total) * weight) if weight and total else 0.0
        return [np.array(factor, mine.dtype)]


def _unshared(sample_weight: Any, dtype: Any) -> Any:
    """Return weights that may be written to: on torch Keras multiplies them with masks in place."""
    return None if sample_weight is None else keras.ops.copy(keras.ops.convert_to_tensor(sample_weight, dtype))


def _divisor(values: Any, sample_weight: Any, mask: Any, reduction: str | None) -> Any:
    """Return Keras' divisor if that is not the number of values; None if it is, or nothing is divided."""
    if mask is not None and reduction in _MEANS:
        return keras.ops.sum(keras.ops.cast(mask, "float32"))
    if reduction == "mean_with_sample_weight" and (sample_weight is not None or mask is not None):
        dtype = keras.backend.standardize_dtype(values.dtype)
        weights = loss_module.apply_mask(
            _unshared(sample_weight, dtype),
            mask,
            dtype=dtype,
            reduction=reduction,
        )
        values, weights = loss_module.squeeze_or_expand_to_same_rank(values, keras.ops.cast(weights, dtype))
        return keras.ops.sum(weights)
    return None
