"""What ``dt.keras.global_batch`` returns in steps of workers that train one model together."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import keras

from dask_train.collectives import ProcessGroup
from dask_train.compat.keras.internals import get_keras_mask, set_keras_mask
from dask_train.fitting.backends import Backend
from dask_train.fitting.backends.tried_gathers import TriedGather, TriedGathers
from dask_train.fitting.roles.aside import has_all_rows, is_aside, tried_gathers
from dask_train.fitting.roles.gathered_metrics import gathered_rows_uncounted
from dask_train.fitting.roles.global_rows import GlobalRows
from dask_train.fitting.roles.gradients import RowFraction
from dask_train.keras_models.global_batch import gathered_by


@contextmanager
def global_batch_of_all(group: ProcessGroup, backend: Backend, share: RowFraction) -> Iterator[None]:
    """While it lasts, rows are gathered from all workers, but where a step is of this worker alone."""
    rows = GlobalRows(group, backend, share, in_own_steps=True)

    def gather(tensors: list[Any]) -> list[Any]:
        if has_all_rows():
            return tensors  # of a compiled loss, which is given them
        if (tried := tried_gathers()) is not None:
            return _with_masks(tensors, partial(_tried, backend, tried))
        if is_aside():
            return tensors
        share.note_gathered()
        return _with_masks(tensors, lambda tensors_and_masks: rows.of(tensors_and_masks, len(tensors_and_masks)))

    with gathered_by(gather), gathered_rows_uncounted(backend, share):
        yield


def _tried(backend: Backend, tried: TriedGathers, tensors: list[Any]) -> list[Any]:
    """Return the rows that play those of all workers."""
    gathered_tensors = []
    for tensor in tensors:
        one = TriedGather()
        (rows,) = backend.gathered(
            lambda arrays, one=one: [tried.gather(one, arrays[0])],  # type: ignore[misc]
            [tensor],
            lambda _: tried.whole_rows,
        )
        if keras.backend.is_float_dtype(keras.backend.standardize_dtype(tensor.dtype)):
            rows = backend.derived_through(
                lambda arrays, one=one: [tried.spread(one, arrays[0])],  # type: ignore[misc]
                tensor,
                rows,
            )
        gathered_tensors.append(rows)
    return gathered_tensors


def _with_masks(tensors: list[Any], gather: Any) -> list[Any]:
    """Gather tensors with the masks that Keras keeps of them."""
    own_tensors = [keras.ops.convert_to_tensor(tensor) for tensor in tensors]
    masks = {place: mask for place, tensor in enumerate(own_tensors) if (mask := get_keras_mask(tensor)) is not None}
    gathered_tensors = gather([*own_tensors, *masks.values()])
    for place, mask in zip(masks, gathered_tensors[len(own_tensors) :], strict=True):
        set_keras_mask(gathered_tensors[place], mask)
    return list(gathered_tensors[: len(own_tensors)])
