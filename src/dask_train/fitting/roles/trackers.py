"""``Mean`` metrics that are updated with one number a batch count each global batch once, as in one process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import keras
import numpy as np

from dask_train.fitting.backends import Backend
from dask_train.fitting.roles.aside import is_aside
from dask_train.fitting.roles.gradients import RowFraction


@contextmanager
def means_of_all(backend: Backend, share: RowFraction) -> Iterator[None]:
    """While it lasts, a number that a ``Mean`` is updated with in a step counts with this worker's share of the rows.

    So a mean over the rows of the global batch counts once, whatever the number of workers. A number with a weight that
    tells how many rows it is of, as Keras' own loss has it, counts with that already, and a vector with its rows.
    """
    original = keras.metrics.Mean.update_state

    def weight(arrays: list[np.ndarray]) -> list[np.ndarray]:
        return [np.array(share.weight, arrays[0].dtype)]

    def update_state(self: Any, values: Any, sample_weight: Any = None) -> Any:
        shape = values.shape if hasattr(values, "shape") else np.shape(values)
        if len(shape) == 0 and not is_aside() and (sample_weight is None or backend.is_constant(sample_weight)):
            (part,) = backend.on_host(weight, [keras.ops.cast(1.0, self.dtype)])
            sample_weight = part if sample_weight is None else part * keras.ops.cast(sample_weight, self.dtype)
        return original(self, values, sample_weight)

    keras.metrics.Mean.update_state = update_state
    try:
        yield
    finally:
        keras.metrics.Mean.update_state = original
