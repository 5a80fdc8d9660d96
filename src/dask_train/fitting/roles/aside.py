"""What callbacks do with a model by themselves, outside the steps of the run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, Protocol

from dask_train.fitting.backends.tried_gathers import TriedGathers

# Keras' own methods that begin with resetting the metrics, which would forget what training has counted.
_RESETTING = ("fit", "evaluate", "train_on_batch", "test_on_batch")


class Counted(Protocol):
    """What training has counted."""

    def state(self) -> Any:
        """Return what it is now."""

    def restore(self, state: Any) -> None:
        """Make it what it was."""


class _Place:
    aside = False


class _Rehearsal(threading.local):
    """The steps that one thread tries; in the user's own process others may train meanwhile."""

    def __init__(self) -> None:
        self.goes_on = self.has_all_rows = False
        self.gradients: list[Any] = []
        self.gathers: TriedGathers | None = None


_place, _rehearsal = _Place(), _Rehearsal()


def is_aside() -> bool:
    """Return whether what is computed now is of this process alone, so that no sum is to be awaited for it.

    Callbacks run, a step is tried only, or there are the rows of all workers.
    """
    return _place.aside or _rehearsal.goes_on or _rehearsal.has_all_rows


@contextmanager
def with_all_rows() -> Iterator[None]:
    """While it lasts, this thread computes of the rows of all workers, as each of them does."""
    before, _rehearsal.has_all_rows = _rehearsal.has_all_rows, True
    try:
        yield
    finally:
        _rehearsal.has_all_rows = before


def is_rehearsed() -> bool:
    """Return whether a step is tried only: optimizers shall apply nothing."""
    return _rehearsal.goes_on


def note_gradients(gradients: Iterable[Any]) -> None:
    """Note what an optimizer was given in a step that is tried only."""
    _rehearsal.gradients.extend(one for one in gradients if one is not None)


def noted_gradients() -> list[Any]:
    """Return what optimizers were given in steps that are tried only, since this was asked last."""
    gradients, _rehearsal.gradients = _rehearsal.gradients, []
    return gradients


def has_all_rows() -> bool:
    """Return whether this thread computes of the rows of all workers."""
    return _rehearsal.has_all_rows


def tried_gathers() -> TriedGathers | None:
    """Return what plays the other workers in a step that is tried; None in any other step."""
    return _rehearsal.gathers


@contextmanager
def rehearsing() -> Iterator[None]:
    """While it lasts, steps that this thread makes and takes are of this process alone, and train nothing."""
    _rehearsal.goes_on, _rehearsal.gathers = True, TriedGathers()
    try:
        yield
    finally:
        _rehearsal.goes_on, _rehearsal.gathers = False, None
        noted_gradients()


class Aside:
    """Lets callbacks have the model as Keras leaves it to them.

    Its ``evaluate``, ``predict`` and ``train_on_batch`` work on whatever data they are given, in this process alone.
    What they count is not counted in training.

    Parameters
    ----------
    model : keras.Model
        That is trained.
    metrics
        Its metrics.

    Attributes
    ----------
    num_times
        How often callbacks have run.
    """

    def __init__(self, model: Any, metrics: Counted) -> None:
        self._model, self._metrics = model, metrics
        self.num_times = 0
        self._own: tuple[Any, Any] = (None, None)  # Keras makes them when they are first called

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """While callbacks run."""
        model = self._model
        ours = model.train_function, model.test_function
        model.train_function, model.test_function = self._own
        for name in _RESETTING:
            object.__setattr__(model, name, self._keeping_metrics(getattr(model, name)))
        _place.aside = True
        self.num_times += 1
        try:
            yield
        finally:
            _place.aside = False
            for name in _RESETTING:
                object.__delattr__(model, name)
            self._own = model.train_function, model.test_function
            model.train_function, model.test_function = ours

    def _keeping_metrics(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def keeping(*args: Any, **kwargs: Any) -> Any:
            counted = self._metrics.state()
            try:
                return method(*args, **kwargs)
            finally:
                self._metrics.restore(counted)

        return keeping
