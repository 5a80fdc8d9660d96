"""Tensors of the rows of a global batch, on every worker, out of the shares of all; derivatives go back to the shares.

Notes
-----
What a worker derives by its weights counts with its share of the rows in the sum over the workers. A loss of all rows
is the same on all workers, so what it derives by weights without anybody's rows, such as a penalty, counts once, as the
shares add up to 1. What it derives by a worker's rows no other worker has: it is divided by the worker's share here.

In steps of a user's own, workers may also derive different losses by the rows of all, whose sum with the shares is the
loss of the global batch. Then what all derive by a worker's rows is summed with the shares first. Where they derive the
same, that changes nothing, and is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from dask_train.collectives import ProcessGroup
from dask_train.collectives.row_gathering import RowGathering
from dask_train.fitting.backends import Backend
from dask_train.fitting.roles.gradients import RowFraction


class GlobalRows:
    """Gathers tensors, each with a row, or several, for each row of a worker's share.

    The rows of the first worker come first. On one host that is their order in the global batch as well.

    Parameters
    ----------
    in_own_steps
        Whether they are gathered in a step of a user's own: then a tensor has one row for each row, no matter how many
        workers there are, and not all workers may derive the same by all rows.
    """

    def __init__(
        self, group: ProcessGroup, backend: Backend, share: RowFraction, *, in_own_steps: bool = False
    ) -> None:
        self._backend, self._share, self._in_own_steps = backend, share, in_own_steps
        self._gathering, self._group = RowGathering(group), group
        self._own = slice(0, 0)
        self._channels: dict[Any, Any] = {}

    def of(self, tensors: Sequence[Any], num_derived: int) -> list[Any]:
        """Return tensors of all rows, for what every worker computes alike of all rows.

        Parameters
        ----------
        tensors
            Of this worker's rows.
        num_derived
            By that many of them, the first ones, may be derived.

        Raises
        ------
        ValueError
            A tensor has no row for each row of the batch, or holds text.
        """
        for tensor in tensors:
            self._check(tensor)
        gathered_tensors = self._backend.gathered(self._gather, tensors, self._rows_of)
        spread = self._own_part_of_sum if self._in_own_steps else self._own_part
        for place, tensor in enumerate(tensors[:num_derived]):
            if keras.backend.is_float_dtype(keras.backend.standardize_dtype(tensor.dtype)):
                gathered_tensors[place] = self._backend.derived_through(spread, tensor, gathered_tensors[place])
        return gathered_tensors

    def _check(self, tensor: Any) -> None:
        shape = tuple(getattr(tensor, "shape", ()))
        if not shape or (shape[0] is not None and shape[0] % self._share.rows):
            raise ValueError(
                f"A tensor of shape {shape} has no row for each of {self._share.rows} rows, so it can't be put "
                "together with those of other workers. Give it a row for each row that goes in, along the first axis; "
                "or pass workers=1."
            )

    def _rows_of(self, rows: int) -> int:
        return rows // self._share.rows * self._share.global_rows

    def _gather(self, arrays: list[np.ndarray]) -> list[np.ndarray]:
        share = self._share
        arrays_by_row = []
        for array in arrays:
            if array.dtype.hasobject:
                raise ValueError(
                    "Text can't be put together from several workers for a loss or metric of one's own. Make numbers "
                    "of it, or pass workers=1."
                )
            if self._in_own_steps and len(array) != share.rows:
                raise ValueError(
                    f"dt.keras.global_batch was given a tensor of shape {array.shape} in a batch of {share.rows} rows. "
                    "Let it have one row for each row of the batch: gather each view of a row by itself, before they "
                    "are put one after the other, and what was gathered not again."
                )
            by_row = array.reshape(share.rows, len(array) // share.rows, *array.shape[1:])
            arrays_by_row.append(by_row if share.weight else by_row[:0])
        gathered_arrays, self._own = (
            self._gathering(arrays_by_row) if share.trial is None else share.trial.gather(arrays_by_row)
        )
        return [array.reshape(-1, *array.shape[2:]) for array in gathered_arrays]

    def _own_part(self, arrays: list[np.ndarray]) -> list[np.ndarray]:
        """Return the derivative by this worker's rows of what all workers have the same of."""
        return [self._mine(array) for array in arrays]

    def _own_part_of_sum(self, arrays: list[np.ndarray]) -> list[np.ndarray]:
        """Return the derivative of the losses of all workers, each with its share, by this worker's rows."""
        (array,) = arrays
        if self._share.trial is not None:
            return [self._mine(one) for one in self._share.trial.sum([array], self._share.weight)]
        exact = array.dtype.itemsize >= 4 and array.dtype.isbuiltin == 1
        key = room, dtype = _room(array.size), array.dtype if exact else np.dtype(np.float32)
        if key not in self._channels:
            self._channels[key] = self._group.channel([(room,)], dtype)
        padded = np.zeros(room, dtype)
        padded[: array.size] = array.reshape(-1)
        (total,) = self._group.sum(self._channels[key], [padded], self._share.weight)
        return [self._mine(total[: array.size].reshape(array.shape)).astype(array.dtype)]

    def _mine(self, array: np.ndarray) -> np.ndarray:
        share = self._share
        by_row = array.reshape(share.global_rows, len(array) // share.global_rows, *array.shape[1:])
        if not share.weight:
            return np.zeros((by_row.shape[1] * share.rows, *array.shape[1:]), array.dtype)
        part: np.ndarray = (by_row[self._own] / share.weight).astype(array.dtype)
        return part.reshape(-1, *array.shape[1:])


def _room(size: int) -> int:
    """Return one of few sizes, at most an eighth larger: a group never gives the memory of a channel back."""
    step = 1 << max(0, (size - 1).bit_length() - 4)
    return -(-size // step) * step
