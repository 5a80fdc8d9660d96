"""The seam between Keras models that predict, or are evaluated, and Keras' backends: a file each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, Protocol

import numpy as np

# What makes something of a batch, as often as it is called.
Run = Callable[[Any], Any]

# Keras' names of the backends that models predict with, and are evaluated with.
BACKENDS = ("tensorflow", "torch", "jax")


class KerasBackend(Protocol):
    """What models that predict ask of a backend; tensors are the backend's own."""

    def take_threads(self, num_threads: int) -> None:
        """Compute with that many threads in this process; asked before anything is computed."""

    def seed(self, number: int) -> None:
        """Let random numbers of the backend's own, which no seed generator of Keras draws, follow from that."""

    def predicting(self, model: Any, *, eagerly: bool) -> Run:
        """Return what predicts of a structure of arrays, all of the same shapes in each call, as Keras' ``predict``.

        Parameters
        ----------
        model : keras.Model
            Built.
        eagerly
            Whether nothing is to be compiled.
        """

    def testing(
        self, model: Any, packed: Callable[[Sequence[Any]], Any], columns: Sequence[np.ndarray]
    ) -> Callable[[Sequence[np.ndarray]], Any]:
        """A ``test_step``, as Keras' ``evaluate`` runs it: metrics count, and the logs of the batch are returned.

        Parameters
        ----------
        model : keras.Model
            Compiled.
        packed
            Makes of columns what ``test_step`` is given.
        columns
            A batch, for its shapes and dtypes; batches may have any number of rows.
        """


def backend_of(name: str) -> KerasBackend:
    """Return the backend of that name; imports its framework.

    Raises
    ------
    ValueError
        It is not one of :data:`BACKENDS`.
    """
    if name not in BACKENDS:
        raise ValueError(
            f"Keras runs on {name!r} here, and models predict, and are evaluated, on {', '.join(BACKENDS)}. Set "
            "KERAS_BACKEND before Keras is imported, or pass a function that calls the model."
        )
    backend: KerasBackend = import_module(f"dask_train.predicting.server.keras_{name}").make()
    return backend
