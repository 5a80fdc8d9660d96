"""Keras models that predict on torch: steps as they are, or through ``torch.compile`` where the model asks for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import keras
import numpy as np
import torch

from dask_train.keras_models.torch_state import torch_modules
from dask_train.predicting.server.keras_backends import Run


def make() -> TorchPredicting:
    """Make the backend."""
    return TorchPredicting()


class TorchPredicting:
    """See :class:`dask_train.predicting.server.keras_backends.KerasBackend`."""

    def take_threads(self, num_threads: int) -> None:
        """Size torch's pool."""
        torch.set_num_threads(num_threads)

    def seed(self, number: int) -> None:
        """Seed what modules of torch draw within a model of Keras."""
        torch.manual_seed(number)

    def predicting(self, model: Any, *, eagerly: bool) -> Run:
        """``predict_step`` without gradients."""
        step = model.predict_step if eagerly else _compiled(model, model.predict_step)

        def run(x: Any) -> Any:
            with _evaluating(model):
                return step((keras.tree.map_structure(_tensor, x),))

        return run

    def testing(
        self,
        model: Any,
        packed: Callable[[Sequence[Any]], Any],
        columns: Sequence[np.ndarray],  # noqa: ARG002 - nothing is compiled for shapes
    ) -> Callable[[Sequence[np.ndarray]], Any]:
        """``test_step`` without gradients."""
        step = _compiled(model, model.test_step)

        def run(rows: Sequence[np.ndarray]) -> Any:
            with _evaluating(model):
                return step(packed(list(map(_tensor, rows))))

        return run


def _compiled(model: Any, step: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Compile as Keras' own functions are."""
    return torch.compile(step) if model.jit_compile and not model.run_eagerly else step


def _tensor(array: np.ndarray) -> Any:
    """Return a copy: modules of torch may write to what they are given."""
    return keras.ops.convert_to_tensor(array.copy())


@contextmanager
def _evaluating(model: Any) -> Iterator[None]:
    """As in Keras' ``predict``, without gradients; each module is afterwards in the mode in which it was."""
    training = [part for part in torch_modules(model) if part.training]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for part in training:
            part.training = True
