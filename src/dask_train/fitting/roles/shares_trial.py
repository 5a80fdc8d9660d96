"""Custom steps are tried before the first one: would workers with parts of a batch do what one process does?

What each worker makes of its rows counts with its share of them, sums over rows aside, as far as the step tells which
losses are such sums. A root of a mean, a quotient of two sums, or a loss that compares rows with each other is nothing
of the kind. So the first batch of a worker goes through its step as a whole, and in parts that play several workers.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np

from dask_train.compat.keras.draws import draws_replaced
from dask_train.compat.keras.layers import flatten_layers
from dask_train.fitting.backends import Backend, StepError
from dask_train.fitting.backends.base import OTHER_ROWS
from dask_train.fitting.backends.rounding import roundings
from dask_train.fitting.roles.by_row import is_of_keras
from dask_train.fitting.roles.gradients import RowFraction
from dask_train.fitting.roles.metrics import Metrics
from dask_train.fitting.roles.rehearsal import has_own_losses, kept
from dask_train.fitting.roles.tried_exchanges import TriedExchanges
from dask_train.fitting.roles.weights import value_of
from dask_train.keras_models import state
from dask_train.keras_models.torch_state import torch_random

Step = Callable[[Any], Any]

_RATES = ("dropout", "recurrent_dropout")


def compare_shares(
    model: Any,
    metrics: Metrics,
    backend: Backend,
    share: RowFraction,
    compiled: tuple[Step, Callable[[], Step]],
    batch: Any,
) -> str | None:
    """Check that parts of a batch are as good as the whole; nothing is trained, and all is as it was before.

    Parameters
    ----------
    share
        Of this worker in that batch, in whose place parts of it come.
    compiled
        The step as workers take it, and what makes it anew.
    batch
        Real rows of this worker.

    Returns
    -------
    str or None
        Why it is unknown; None if it is known, or nothing is to be compared.

    Raises
    ------
    StepError
        They are not.
    """
    rows = min(_MOST_ROWS, int(keras.tree.flatten(batch)[0].shape[0]))
    if rows == 1:
        return "its first share of a batch has a single row"
    few = _part(batch, slice(0, rows))
    out_of_sight = [variable for optimizer in share.optimizers.values() for variable in optimizer.variables]
    step, make = compiled
    with kept(model, metrics, out_of_sight) as set_back, _python_draws_kept(), _share_kept(share):
        trial = _Trial(model, backend, share, set_back, few, rows)
        try:
            verdict = trial.found(step)
            if not has_own_losses(model):  # not known before of a model that runs eagerly
                return None
            with put_aside(model) as is_changed, draws_replaced():
                if not verdict.is_mean and (is_changed or verdict.draws):
                    step = make()
                    verdict = trial.found(step)
                if verdict.is_mean:
                    return None if trial.is_mean_of_other_rows(step) else OTHER_ROWS
        except Exception as error:  # such as a step that takes a fixed number of rows
            return f"a step of {rows} rows, or of a part of them, fails with {type(error).__name__}: {error}"
    if not verdict.is_finite:
        return "numbers in its first step are not finite"
    if verdict.draws:
        return "it draws random numbers"
    raise StepError(
        f"Model {model.name!r} computes a loss of its own, in train_step, compute_loss or add_loss, that is neither a "
        "mean nor a sum over rows, or has a layer of its own that couples them: its gradients of a batch are not those "
        "of the batch's parts, and several workers would train another model than one. Pass the loss to compile as "
        "loss=, which is given the rows of all workers; gather the rows that it compares with dt.keras.global_batch; "
        "or pass workers=1."
    )


# This many rows of a batch are tried at most: as good as more, and less to compute.
_MOST_ROWS = 32


@dataclass(frozen=True)
class _Found:
    """What a trial has shown.

    Attributes
    ----------
    is_mean
        Whether parts of the batch add up to the whole. Also where nothing is exchanged.
    draws
        Whether the step draws random numbers, or is another one each time.
    is_finite
        Whether all numbers are.
    """

    is_mean: bool
    draws: bool = False
    is_finite: bool = True


class _Trial:
    """Steps of a batch and of its parts."""

    def __init__(
        self,
        model: Any,
        backend: Backend,
        share: RowFraction,
        set_back: Callable[[], None],
        batch: Any,
        rows: int,
    ) -> None:
        self._model, self._backend, self._share, self._set_back = model, backend, share, set_back
        self._batch, self._rows = batch, rows

    def found(self, step: Step) -> _Found:
        """Try a step."""
        room = _room(self._model)
        exchanges, draws = self._exchanged(step, in_parts=True)
        if not exchanges.is_used or exchanges.adds_up(room):
            return _Found(True)
        again, _ = self._exchanged(step, in_parts=False)
        draws = draws or self._backend.draws(step) or not exchanges.is_like(again, room)
        return _Found(False, draws, exchanges.is_finite)

    def is_mean_of_other_rows(self, step: Step) -> bool:
        """Return whether parts add up to the whole also where rows differ more; true if that can't be tried.

        Each column is sorted: small values come into the first rows, among them those that a mask leaves out. So rows
        that leave as much of each other as the next, by which a quotient of two sums looks like a mean, no longer do.
        Not tried on accelerators, where an index out of range ends the process.
        """
        if _is_on_accelerator(self._model):
            return True
        original_batch, self._batch = self._batch, keras.tree.map_structure(_sorted, self._batch)
        try:
            exchanges, draws = self._exchanged(step, in_parts=True)
        except Exception:  # values that do not go together
            return True
        finally:
            self._batch = original_batch
        return draws or not exchanges.is_used or not exchanges.is_whole_finite or exchanges.adds_up(_room(self._model))

    def _exchanged(self, step: Step, *, in_parts: bool) -> tuple[TriedExchanges, bool]:
        """Return what steps exchange, of a batch, and of two parts of it; and whether they have drawn."""
        exchanges = self._share.trial = TriedExchanges()
        draws, first = False, max(1, self._rows // 4)  # parts of unlike size differ more
        exchanges.begin_whole()
        draws |= self._take(step, slice(0, self._rows))
        for part in (slice(0, first), slice(first, self._rows)) if in_parts else ():
            exchanges.begin_part(part)
            draws |= self._take(step, part)
        exchanges.finish()
        return exchanges, draws

    def _take(self, step: Step, rows: slice) -> bool:
        """Take a step of these rows; return whether it has drawn random numbers. What it did is undone."""
        self._share.set(rows.stop - rows.start, self._rows)
        for optimizer in (*(one for one, _ in state.held_optimizers(self._model)), *self._share.optimizers.values()):
            if hasattr(optimizer, "inner_optimizer"):  # a scale that is not found yet may leave the range of float16
                optimizer.dynamic_scale.assign(1.0)
        before = self._seeds()
        step(_part(self._batch, rows))
        draws = self._seeds() != before
        self._set_back()
        return draws

    def _seeds(self) -> tuple[Any, ...]:
        """Return the states of all generators of random numbers that are known, as far as they can be compared."""
        seeds = [value_of(one).tobytes() for one in (*state.seed_states(self._model), *torch_random())]
        _, keys, place, *_ = np.random.get_state()
        return seeds, np.asarray(keys).tobytes(), place, random.getstate()


def _part(batch: Any, rows: slice) -> Any:
    return keras.tree.map_structure(lambda column: column[rows], batch)


def _room(model: Any) -> float:
    """Return by how much gradients may differ: accelerators multiply in fewer digits."""
    return max(roundings(model)[0], 5e-3 if _is_on_accelerator(model) else 0.0)


def _is_on_accelerator(model: Any) -> bool:
    devices = {str(getattr(variable.value, "device", "")).lower() for variable in model.variables}
    return any(kind in device for device in devices for kind in ("cuda", "gpu"))


def _sorted(column: Any) -> Any:
    values = np.asarray(keras.ops.convert_to_numpy(column))
    return column if values.dtype.hasobject else keras.ops.convert_to_tensor(np.sort(values, axis=0), column.dtype)


@contextmanager
def _python_draws_kept() -> Iterator[None]:
    ours, numpys = random.getstate(), np.random.get_state()
    try:
        yield
    finally:
        random.setstate(ours)
        np.random.set_state(numpys)


@contextmanager
def _share_kept(share: RowFraction) -> Iterator[None]:
    rows = share.rows, share.global_rows
    try:
        yield
    finally:
        share.trial = None
        share.set(*rows)


@contextmanager
def put_aside(model: Any) -> Iterator[bool]:
    """Let layers that draw random numbers, or normalise a batch, do as they do outside training, while it lasts.

    A mean over rows is one with these or without, and that is unknown if masks differ each time, or statistics
    are of a part. Subclasses of ``BatchNormalization`` count, too; custom layers that draw do not.

    Yields
    ------
    bool
        Whether there are any. Then steps are to be compiled anew.
    """
    with ExitStack() as undone:
        for layer in (layers := [layer for layer in flatten_layers(model) if _is_aside(layer)]):
            for name in _RATES:  # recurrent layers draw masks for their cells
                if vars(layer).get(name):
                    undone.callback(vars(layer).__setitem__, name, vars(layer)[name])
                    vars(layer)[name] = 0.0
            vars(layer)["call"] = _outside_training(layer.call)
            undone.callback(vars(layer).pop, "call")
        yield bool(layers)


def _is_aside(layer: Any) -> bool:
    if isinstance(layer, keras.layers.BatchNormalization):
        return True
    draws = any(isinstance(one, keras.random.SeedGenerator) for one in vars(layer).values())
    # Drawing may be what a custom layer is for, such as a sample of a distribution: it is left as it is.
    return draws and is_of_keras(type(layer))


def _outside_training(call: Callable[..., Any]) -> Callable[..., Any]:
    def outside_training(*args: Any, **kwargs: Any) -> Any:
        return call(*args, **{**kwargs, "training": False})

    return outside_training
