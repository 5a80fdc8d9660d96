"""Whether a step on JAX is one that workers can take together: it is tried on a batch, and on parts of its rows.

What each worker makes of its rows counts with its share of them. That is right where a batch's gradients are the means
of those of its parts, each weighed with its rows; a sum over rows, a root of a mean, or a loss that compares rows with
each other is nothing of the kind.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from dask_train.fitting.backends.base import StepError
from dask_train.fitting.backends.rounding import ROUNDED, is_mean, roundings, size_of
from dask_train.fitting.backends.tried_gathers import TriedGathers


class Found(NamedTuple):
    """What a step makes of some rows, with which nothing is trained.

    Attributes
    ----------
    logs
        What it returns.
    metrics
        What the variables of metrics hold then.
    results
        What metrics say then, by name.
    gradients
        What optimizers are given.
    """

    logs: Mapping[str, Any]
    metrics: Sequence[Any]
    results: Mapping[str, Any]
    gradients: Sequence[Any]


def check_step(
    tried: Callable[[Any, Any], Found],
    arguments: tuple[Any, ...],
    batch: Any,
    gathers: TriedGathers,
    *,
    model: Any,
    looks_at_logs: bool,
) -> frozenset[str]:
    """Check that workers can take a step together.

    Parameters
    ----------
    tried
        The step: takes what variables hold, those of metrics last, and a batch.
    arguments, batch
        Those of the first step.
    gathers
        What plays the other workers.
    looks_at_logs
        Whether logs may be something else than what metrics say; only then the step tells more than gradients.

    Returns
    -------
    frozenset of str
        Logs that do not depend on what metrics have counted.

    Raises
    ------
    StepError
        They can't.
    """
    whole, parts, shares = _cut(batch)
    passes = _Passes(tried, gathers, whole)
    of_whole = passes.of_whole(arguments)
    of_parts = passes.of_parts(arguments, parts, shares)
    if not _are_means(of_whole, of_parts, shares, model):
        raise StepError(_no_mean(model))
    room_of_logs = roundings(model)[1]
    if not looks_at_logs:
        return frozenset()
    later = passes.of_last((*arguments[:-1], list(of_parts[0].metrics)))
    every = [of_whole, *of_parts, later]
    own = [name for name in of_whole.logs if not all(_says(trial, name) for trial in every)]
    for name in own:
        of_logs = [trial.logs[name] for trial in every]
        depends = not np.allclose(of_logs[2], of_logs[3], rtol=room_of_logs, atol=0, equal_nan=True)
        if depends or not is_mean(of_logs[0], of_logs[1:3], shares, room_of_logs):
            raise StepError(
                f"Model {model.name!r} logs {name!r}, which is neither what a metric says nor a mean over the rows of "
                "a batch, so it can't be computed over several workers on JAX. Return metrics' results under their "
                "own names, and means over rows; or pass workers=1."
            )
    return frozenset(own)


def is_mean_of_other_rows(
    tried: Callable[[Any, Any], Found], arguments: tuple[Any, ...], batch: Any, gathers: TriedGathers, model: Any
) -> bool:
    """Return whether a step that :func:`check_step` takes is one of a mean also where rows differ more.

    Each column is sorted, by which small values come into the first part, among them those that a mask leaves out. True
    where that can't be tried.
    """
    whole, parts, shares = _cut(jax.tree.map(lambda column: jax.numpy.sort(column, axis=0), batch))
    gathers.forget()
    passes = _Passes(tried, gathers, whole)
    try:
        of_whole = passes.of_whole(arguments)
        of_parts = passes.of_parts(arguments, parts, shares)
    except Exception:  # values that do not go together
        return True
    is_finite = all(np.isfinite(np.asarray(one, np.float64)).all() for one in of_whole.gradients)
    return not is_finite or _are_means(of_whole, of_parts, shares, model)


def _are_means(of_whole: Found, of_parts: Sequence[Found], shares: Sequence[float], model: Any) -> bool:
    room, _ = roundings(model)
    noise = ROUNDED * room * max(map(size_of, of_whole.gradients), default=0.0)
    pairs = zip(of_whole.gradients, *(one.gradients for one in of_parts), strict=True)
    return all(is_mean(whole, parts, shares, room, noise) for whole, *parts in pairs)


class _Passes:
    """Steps that are tried on a batch, and on parts of it; one after the other is run to its end."""

    def __init__(self, tried: Callable[[Any, Any], Found], gathers: TriedGathers, whole: Any) -> None:
        self._tried, self._gathers, self._whole = tried, gathers, whole
        gathers.whole_rows = _num_rows(whole)
        self._last: Callable[[Any], Found]

    def of_whole(self, values: Any) -> Found:
        """Return what the step makes of the whole batch."""
        self._gathers.begin()
        return self._run(values, self._whole)

    def of_parts(self, values: Any, parts: Sequence[Any], shares: Sequence[float]) -> list[Found]:
        """Return what it makes of each part, in which it may gather the rows of all."""
        edges = [0, *itertools.accumulate(map(_num_rows, parts))]
        places = [slice(*pair) for pair in itertools.pairwise(edges)]

        def of_part(number: int, values: Any, *, notes: bool) -> Found:
            self._gathers.begin(places[number], shares[number], notes=notes)
            return self._run(values, parts[number])

        self._last = partial(of_part, len(parts) - 1, notes=False)
        if self._gathers.are_used:  # a part's derivatives are those of all losses, which are known after this
            for number in range(len(parts)):
                of_part(number, values, notes=True)
        return [of_part(number, values, notes=False) for number in range(len(parts))]

    def of_last(self, values: Any) -> Found:
        """Return what it makes of the last part where metrics have counted something before."""
        return self._last(values)

    def _run(self, values: Any, batch: Any) -> Found:
        jax.block_until_ready((values, batch))  # else the step may hang, as one in earnest
        trial = jax.block_until_ready(self._tried(values, batch))
        jax.effects_barrier()
        return trial


def _num_rows(batch: Any) -> int:
    return int(jax.tree.leaves(batch)[0].shape[0])


_FEW_ROWS = 8


def _cut(batch: Any) -> tuple[Any, list[Any], list[float]]:
    """Return a batch, its two parts, and the share of rows of each; of a single row the same one twice."""
    rows = _num_rows(batch)
    if rows == 1:
        twice = jax.tree.map(lambda column: jax.numpy.concatenate([column, column]), batch)
        return twice, [batch, batch], [0.5, 0.5]
    few = rows // 4 if rows > _FEW_ROWS else rows // 2  # small parts differ more; two alike are compiled once
    first = jax.tree.map(lambda column: column[:few], batch)
    return batch, [first, jax.tree.map(lambda column: column[few:], batch)], [few / rows, 1 - few / rows]


def _says(trial: Found, name: str) -> bool:
    """Return whether a log is what the metric of that name says."""
    if name not in trial.results:
        return False
    return bool(np.array_equal(np.asarray(trial.logs[name]), np.asarray(trial.results[name]), equal_nan=True))


def _no_mean(model: Any) -> str:
    return (
        f"Model {model.name!r} has a loss of its own that is no mean over rows: the gradients of a batch are not the "
        "means of those of its parts. It may be a sum over rows, look at several rows together, or be computed beside "
        "BatchNormalization or random numbers, and on JAX several workers can't tell which. Pass the loss to compile "
        "as loss=, which is given the rows of all workers; gather all rows that it compares with "
        "dt.keras.global_batch; compute a mean over rows; or pass workers=1."
    )
