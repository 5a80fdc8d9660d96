"""Statistics of the whole global batch, for layers that synchronise theirs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import numpy as np

from dask_train.collectives import ProcessGroup
from dask_train.fitting.backends import Backend
from dask_train.fitting.roles.aside import is_aside
from dask_train.fitting.roles.gradients import RowFraction


def moments_of_all(group: ProcessGroup, backend: Backend, share: RowFraction) -> AbstractContextManager[None]:
    """Give layers with ``synchronized=True`` the statistics of all rows of a global batch, while it lasts.

    Notes
    -----
    A loss depends on each worker's rows through the sums, so the derivative by a part of a sum is that of the losses of
    all workers by the sum. Losses, and later gradients, count with each one's share of the rows.
    """
    summing = _SummedMoments(group, share)
    return backend.moments_of_all(
        partial(backend.on_host, summing.forward), partial(backend.on_host, summing.backward), is_aside
    )


class _SummedMoments:
    def __init__(self, group: ProcessGroup, share: RowFraction) -> None:
        self._group, self._share = group, share
        self._channels: dict[Any, Any] = {}

    def forward(self, arrays: list[np.ndarray]) -> list[np.ndarray]:
        """Sum over the rows of all workers; the made-up row of a worker without rows counts for nothing."""
        return self._sum(arrays, 1.0 if self._share.weight else 0.0)

    def backward(self, arrays: list[np.ndarray]) -> list[np.ndarray]:
        """Return derivatives of the loss of all rows, divided by the weight of this worker's gradients in the end."""
        weight = self._share.weight
        total = self._sum(arrays, weight)
        return [np.asarray(one / weight if weight else np.zeros_like(one), one.dtype) for one in total]

    def _sum(self, arrays: Sequence[np.ndarray], weight: float) -> list[np.ndarray]:
        if self._share.trial is not None:
            return self._share.trial.sum(arrays, weight)
        key = tuple((array.shape, array.dtype.str) for array in arrays)
        if key not in self._channels:
            self._channels[key] = self._group.channel([array.shape for array in arrays], arrays[0].dtype)
        return [np.array(one) for one in self._group.sum(self._channels[key], arrays, weight)]
