"""Whether metrics of a user's own can be added up over workers, or partitions: that is tried on real rows."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import nullcontext
from typing import Any

import numpy as np

from dask_train.fitting.backends import Backend
from dask_train.fitting.roles.metrics import Metrics, all_metrics, compiled_with
from dask_train.fitting.roles.rehearsal import may_have_own_losses, rehearsed


def check_sums(
    model: Any,
    metrics: Metrics,
    counted: Callable[[int], list[np.ndarray]],
    over: str,
    left_out: Collection[int] = (),
) -> set[int]:
    """Check that custom metrics count sums over rows: what a batch counts twice, it counts double.

    A batch of which a variable counts 0 shows nothing of it: a maximum of zeros is their sum.

    Parameters
    ----------
    counted
        Called with how often a batch is gone through; what metrics count then, beginning with nothing. They have their
        variables by then.
    over
        Over what they are to be added up, for the error.
    left_out
        Metrics that are not, by their ``id``.

    Returns
    -------
    set of int
        Places, in what is counted, of variables of which this batch has shown nothing.

    Raises
    ------
    ValueError
        One holds something else, such as a maximum, which can't be added up.
    """
    own = [metric for metric in all_metrics(model) if _is_own(metric) and id(metric) not in left_out]
    if not own:
        return set()
    unknown = set()
    once, again, twice = counted(1), counted(1), counted(2)
    places = metrics.places()
    for metric in own:
        for variable in metric.variables:
            number = places.get(id(variable))
            if number is None or not _alike(once[number], again[number]):
                continue  # of a batch that counts something else each time, such as of random numbers, nothing is known
            if not np.any(once[number]):
                unknown.add(number)
            if not _alike(2 * once[number], twice[number]):
                raise ValueError(
                    f"Metric {metric.name!r} of class {type(metric).__name__} does not count sums over rows "
                    f"(variable {variable.name!r}), so it can't be added up over {over}. Keep sums in its variables "
                    "and divide in result(); or predict, and compute it of predictions and targets."
                )
    return unknown


def check_sums_in_steps(
    model: Any,
    metrics: Metrics,
    backend: Backend,
    make_step: Callable[[], Callable[[Any], Any]],
    batch: Any,
    *,
    compiled: bool,
) -> set[int]:
    """Do as :func:`check_sums`, of steps on a batch that train nothing and leave nothing behind.

    Parameters
    ----------
    make_step
        Returns the step as ``fit`` would run it; called only where there are custom metrics.
    compiled
        Whether metrics of ``compile`` are added up as well; else they are given all workers' rows.

    Returns
    -------
    set of int
        As of :func:`check_sums`.

    Raises
    ------
    ValueError
        A metric can't be added up over workers.
    """
    left_out = set() if compiled else set(map(id, compiled_with(model)))
    own = [*all_metrics(model), *(compiled_with(model) if compiled else ())]
    if not any(_is_own(metric) for metric in own if id(metric) not in left_out):
        return set()
    as_written = backend.functions_run_as_written() if may_have_own_losses(model) else nullcontext()
    with as_written, rehearsed(model, metrics) as set_back:
        tried = make_step()

        def counted(times: int) -> list[np.ndarray]:
            model.reset_metrics()
            for _ in range(times):
                tried(batch)
                set_back()
            return metrics.counted()

        tried(batch)  # it makes the metrics' variables
        set_back()
        return check_sums(model, metrics, counted, "workers", left_out)


def _is_own(metric: Any) -> bool:
    return not type(metric).__module__.startswith("keras.")


def _alike(one: np.ndarray, other: np.ndarray) -> bool:
    rounded = np.allclose(one, other, rtol=1e-3, atol=1e-4, equal_nan=True)
    # Of small numbers, too, 1 and 2 are not taken for the same; what rounding leaves of large ones differs by less.
    return bool(rounded and np.allclose(one, other, rtol=0.1, atol=0.0, equal_nan=True))
