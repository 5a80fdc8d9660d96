"""Which runner opens which model; finding one imports its framework."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from dask_train.prediction.values import Call


class Runner(Protocol):
    """A model that answers calls in this process, one at a time."""

    def predict(
        self, call: Call, columns: Sequence[np.ndarray], out: Sequence[np.ndarray], beat: Callable[[], None]
    ) -> None:
        """Write what the model says of the rows into ``out``."""

    def evaluate(self, call: Call, columns: Sequence[np.ndarray], beat: Callable[[], None]) -> list[np.ndarray]:
        """What the model's metrics count over the rows."""


def opened(kind: str, header: bytes, arrays: Sequence[np.ndarray], num_threads: int) -> Runner:
    """A runner of the model that came in parts; each array is copied once."""
    if kind == "keras":
        from dask_train.prediction import keras_model

        return keras_model.KerasRunner(keras_model.open_parts(header, arrays))
    if kind == "file":
        from dask_train.prediction import files, keras_model

        return keras_model.KerasRunner(files.open_file(header))
    from dask_train.prediction import torch_model

    return torch_model.TorchRunner(torch_model.open_parts(header, arrays), num_threads)


def runner_of(model: Any) -> Runner:
    """A runner of a model that lives in this process."""
    if any(kind.__module__.startswith("torch.nn") for kind in type(model).__mro__) and not _is_keras(model):
        from dask_train.prediction import torch_model

        return torch_model.TorchRunner(model, None)
    from dask_train.prediction import keras_model

    return keras_model.KerasRunner(model)


def _is_keras(model: Any) -> bool:
    return any(kind.__module__.startswith("keras.") for kind in type(model).__mro__)
