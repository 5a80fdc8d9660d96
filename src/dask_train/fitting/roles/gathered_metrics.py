"""Metrics in steps that gather rows: what all workers have would be counted once by each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any

import keras

from dask_train.fitting.backends import Backend
from dask_train.fitting.roles.aside import is_aside
from dask_train.fitting.roles.gradients import RowFraction
from dask_train.keras_models.custom_objects import STANDS_IN_FOR


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
