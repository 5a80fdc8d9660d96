"""Rows that are as long as the longest of a batch: workers whose longest rows differ pad them, or raise an error.

A mean over rows and their steps divides by the length of all rows, which is that of the longest row of the global batch
in one process. A worker only knows its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any

import keras
import numpy as np

from dask_train.collectives import ProcessGroup
from dask_train.collectives.row_gathering import RowGathering
from dask_train.fitting.backends import Backend
from dask_train.fitting.roles.aside import is_aside
from dask_train.fitting.roles.gradients import RowFraction


class RowLengths:
    """Compares the shapes of rows over all workers, in steps that may change them.

    Parameters
    ----------
    by_code
        Whether code may, where a step runs as it is written.
    """

    def __init__(self, group: ProcessGroup, backend: Backend, share: RowFraction, *, by_code: bool) -> None:
        self._gathering, self._backend, self._share = RowGathering(group), backend, share
        self._by_code = by_code

    def check(self, tensors: Sequence[Any]) -> None:
        """Check that rows of tensors have the same shapes on all workers, when a step comes to this point.

        Raises
        ------
        ValueError
            They have not; on all workers.
        """
        present_tensors = [tensor for tensor in tensors if tensor is not None]
        if self._may_differ(present_tensors):
            self._backend.on_host(self._check, [_sizes(present_tensors)])

    def padded(self, tensors: Sequence[Any]) -> list[Any]:
        """Return tensors whose rows are padded with zeros to the size of the largest ones of all workers.

        A worker without rows takes the step with a row of another batch, which may be larger than all and is cut.
        """
        if not self._may_differ(tensors):
            return list(tensors)
        (largest,) = self._backend.on_host(self._largest, [_sizes(tensors)])
        padded_tensors, place = [], 0
        for tensor in tensors:
            own = keras.ops.shape(tensor)[1:]
            wanted = [_number(largest[place + number]) for number in range(len(own))]
            place += len(own)
            fitting = tensor[(slice(None), *map(slice, wanted))]
            widths = [(0, size - here) for size, here in zip(wanted, keras.ops.shape(fitting)[1:], strict=True)]
            grown = keras.ops.pad(keras.ops.cast(fitting, "int32") if _is_mask(tensor) else fitting, [(0, 0), *widths])
            padded_tensors.append(keras.ops.cast(grown, "bool") if _is_mask(tensor) else grown)
        return padded_tensors

    def _may_differ(self, tensors: Sequence[Any]) -> bool:
        if is_aside():
            return False
        return any(self._backend.row_shape_may_vary(tensor, by_code=self._by_code) for tensor in tensors)

    def _of_all(self, sizes: np.ndarray) -> np.ndarray:
        """Return the sizes of each worker that has rows."""
        if self._share.trial is not None:
            return sizes[np.newaxis]
        mine = sizes.astype(np.int64)[np.newaxis]
        return self._gathering([mine if self._share.weight else mine[:0]]).arrays[0]

    def _check(self, arrays: list[np.ndarray]) -> list[np.ndarray]:
        of_all = self._of_all(arrays[0])
        if (of_all != of_all[:1]).any():
            column = int((of_all != of_all[:1]).any(axis=0).argmax())
            lengths = sorted(set(of_all[:, column].tolist()))
            raise ValueError(
                f"Rows of outputs or targets have a size of {lengths[0]} on one worker and of {lengths[-1]} on "
                "another, and a loss or metric counts all of it. In one process all rows would be as long as the "
                "longest of the batch. Let them have the same size on all workers: pad to the longest row of all, "
                "whose length is ops.max(dt.keras.global_batch(lengths)); mask what is padded; or pass workers=1."
            )
        return arrays

    def _largest(self, arrays: list[np.ndarray]) -> list[np.ndarray]:
        return [self._of_all(arrays[0]).max(axis=0).astype(arrays[0].dtype)]


@contextmanager
def texts_of_one_length(lengths: RowLengths) -> Iterator[None]:
    """While it lasts, ``TextVectorization`` pads texts to the longest one of all workers, not of this one."""
    original = keras.layers.TextVectorization.call

    @wraps(original)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        output = original(self, *args, **kwargs)
        is_ragged = hasattr(output, "row_splits")  # then each text keeps its own length
        return lengths.padded([output])[0] if keras.ops.is_tensor(output) and not is_ragged else output

    keras.layers.TextVectorization.call = call
    try:
        yield
    finally:
        keras.layers.TextVectorization.call = original


def _sizes(tensors: Sequence[Any]) -> Any:
    sizes = [size for tensor in tensors for size in keras.ops.shape(tensor)[1:]]
    return keras.ops.stack([keras.ops.cast(size, "int32") for size in sizes])


def _number(size: Any) -> Any:
    """Return a size as a Python number where it has a value by now."""
    return size if keras.backend.backend() == "tensorflow" else int(size)


def _is_mask(tensor: Any) -> bool:
    return bool(keras.backend.standardize_dtype(tensor.dtype) == "bool")
