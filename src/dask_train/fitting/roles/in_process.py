"""A model that is trained in the user's own process, as it is, and what is left there afterwards."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress

from dask_train.errors import CheckpointError
from dask_train.fitting.roles.weights import value_of
from dask_train.fitting.roles.worker import Worker
from dask_train.keras_models.torch_state import torch_random

# What a worker sets on a model; its own one is gone with its process.
_SET = ("train_function", "test_function")


@contextmanager
def left_as_keras_would(worker: Worker) -> Iterator[None]:
    """While it lasts, a worker trains the user's own model; a later call of Keras' makes its own functions.

    torch's random numbers continue where they were, as after a run in other processes: the same call trains the same
    model again.
    """
    model, random = worker.model, [(one, value_of(one)) for one in torch_random()]
    try:
        with not_autologged():
            yield
    finally:
        with suppress(CheckpointError):  # the run ends with another error, or has seen this one
            worker.keeper.finish()
        for name in _SET:
            setattr(model, name, None)
        vars(model).pop("_should_eval", None)
        for one, value in random:
            one.assign(value)


@contextmanager
def not_autologged() -> Iterator[None]:
    """While it lasts, ``mlflow.keras.autolog()`` does not look on; it takes each call of Keras' ``fit`` for a run."""
    mlflow = sys.modules.get("mlflow.utils.autologging_utils")
    with nullcontext() if mlflow is None else mlflow.disable_autologging():
        yield
