"""What ``dt.keras.global_batch`` returns in steps of workers that train one model together.

In such steps a metric is not updated with rows of all workers, which each of them would count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial, wraps
from typing import Any

import keras

from dask_train.collectives import ProcessGroup
from dask_train.compat.keras.internals import get_keras_mask, set_keras_mask
from dask_train.fitting.backends import Backend
from dask_train.fitting.backends.tried_gathers import TriedGather, TriedGathers
from dask_train.fitting.roles.aside import has_all_rows, is_aside, tried_gathers
from dask_train.fitting.roles.global_rows import GlobalRows
from dask_train.fitting.roles.gradients import RowFraction
from dask_train.keras_models.custom_objects import STANDS_IN_FOR
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


@contextmanager
def gathered_rows_uncounted(backend: Backend, share: RowFraction) -> Iterator[None]:
    """While it lasts, a metric that is updated with rows of all workers raises an error.

    What metrics count is added up over the workers, so each row of a worker is to be counted by that worker alone. A
    single number that a ``Mean`` is updated with counts with the worker's share of the rows, and so once.
    """

    def checked(original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def update_state(self: Any, *args: Any, **kwargs: Any) -> Any:
            if share.is_gathered and not is_aside():
                tensors = [one for one in keras.tree.flatten((args, kwargs)) if hasattr(one, "shape")]
                _check(self, tensors, backend, share)
            return original(self, *args, **kwargs)

        setattr(update_state, STANDS_IN_FOR, original)  # classes of the user's own travel meanwhile
        return update_state

    with ExitStack() as undone:
        for cls in _classes():
            original = vars(cls)["update_state"]
            cls.update_state = checked(original)
            undone.callback(setattr, cls, "update_state", original)
        yield


def _check(metric: Any, tensors: list[Any], backend: Backend, share: RowFraction) -> None:
    if any(len(one.shape) > 0 and backend.has_rows_of_all(one, share.rows, share.global_rows) for one in tensors):
        raise ValueError(
            f"Metric {metric.name!r} is updated with rows of dt.keras.global_batch. All workers have these, and each "
            "would count them. Update it with the rows of the batch; or update a keras.metrics.Mean with one number, "
            "such as the mean over the gathered rows."
        )
    if isinstance(metric, keras.metrics.Sum) and any(len(one.shape) == 0 for one in tensors):
        raise ValueError(
            f"Metric {metric.name!r} is a sum of numbers that come after dt.keras.global_batch, and each worker would "
            "add its own. Update a keras.metrics.Mean with them."
        )


def _classes() -> list[Any]:
    """Return all classes of metrics that say how they are updated."""
    waiting, updates_by_class = [keras.Metric], {}
    while waiting:
        cls = waiting.pop()
        if cls not in updates_by_class:
            updates_by_class[cls] = "update_state" in vars(cls)
            waiting.extend(cls.__subclasses__())
    return [cls for cls, updates in updates_by_class.items() if updates]
