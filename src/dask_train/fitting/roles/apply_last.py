"""The optimizer's step put behind all else of a step: what is a worker's own is known before the last sum then."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dask_train.fitting.backends import Backend


class ApplyLast:
    """Lets steps apply gradients when all else in them is done, and reports the moment before.

    At that moment a worker's moving averages, random numbers and metrics are what they will be after the step, and no
    worker has passed the last sum of the step. So a worker that passes it knows that all others have noted what is
    their own.

    Parameters
    ----------
    backend
        Of the model.
    own
        Returns the variables that are this worker's own.
    known
        Called in each step, at that moment.
    """

    def __init__(self, backend: Backend, own: Callable[[], Sequence[Any]], known: Callable[[], None]) -> None:
        self._backend, self._own, self._known = backend, own, known
        self._waiting: list[Callable[[], Any]] | None = None

    def step(self, train_step: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return a ``train_step`` of Keras' own that applies gradients last."""

        def taken(batch: Any) -> Any:
            self._waiting = []
            try:
                logs = train_step(batch)
            finally:
                waiting, self._waiting = self._waiting, None
            if len(waiting) > 1:
                raise ValueError(
                    "Gradients are applied several times in a step, and with recovery='in_place' they are once. Leave "
                    "recovery= out."
                )
            for apply in waiting:
                known = self._backend.at_this_point(self._known, self._own())
                with self._backend.after(known):
                    apply()
            return logs

        return taken

    def put_off(self, apply: Callable[[], Any]) -> Any:
        """Apply gradients when the rest of the current step is done; at once outside steps."""
        if self._waiting is None:
            return apply()
        self._waiting.append(apply)
        return None
