"""Which runner opens which model; finding one imports its framework."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from dask_train.frameworks.keras.environment import keras_imports
from dask_train.frameworks.torch.environment import TORCH_IMPORTS
from dask_train.predicting.server.values import Call, ModelParts


class Runner(Protocol):
    """A model that answers calls in this process, one at a time."""

    def predict(
        self, call: Call, columns: Sequence[np.ndarray], out: Sequence[np.ndarray], beat: Callable[[], None]
    ) -> None:
        """Write what the model says of the rows into ``out``."""

    def evaluate(self, call: Call, columns: Sequence[np.ndarray], beat: Callable[[], None]) -> list[np.ndarray]:
        """Return what the model's metrics count over the rows."""

    def logs(self, call: Call, columns: Sequence[np.ndarray], beat: Callable[[], None]) -> dict[str, Any]:
        """Return what the model's metrics say after the last batch."""


def load_runner(kind: str, header: bytes, arrays: Sequence[np.ndarray], num_threads: int) -> Runner:
    """Return a runner of the model that came in parts; each array is copied once."""
    if kind in ("keras", "file"):
        import keras

        from dask_train.keras_models.lazy_tensorflow import spare_tensorflow
        from dask_train.predicting.server import files, keras_backends, keras_model

        spare_tensorflow()
        keras_backends.backend_of(keras.backend.backend()).take_threads(num_threads)
        return keras_model.KerasRunner(
            keras_model.open_parts(header, arrays) if kind == "keras" else files.open_file(header)
        )
    from dask_train.predicting.server import torch_model

    return torch_model.TorchRunner(torch_model.open_parts(kind, header, arrays), num_threads)


def imports_of(parts: ModelParts) -> tuple[str, ...]:
    """Modules that a process of the model imports, whatever the model: what a template of such processes imports."""
    if parts.kind in ("keras", "file"):
        return keras_imports(parts.environment["KERAS_BACKEND"])
    return TORCH_IMPORTS


def runner_of(model: Any) -> Runner:
    """Return a runner of a model that lives in this process."""
    modules = [kind.__module__ for kind in type(model).__mro__]
    if any(each.startswith("torch.nn") for each in modules) and not any(each.startswith("keras.") for each in modules):
        from dask_train.predicting.server import torch_model

        return torch_model.TorchRunner(model, None)
    from dask_train.predicting.server import keras_model

    return keras_model.KerasRunner(model)
