"""Keras models that predict on JAX: steps as ``jax.jit``, compiled once for each shape of a batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import keras
import numpy as np

from dask_train.frameworks.jax.arrays import shared_array
from dask_train.frameworks.jax.environment import take_threads
from dask_train.keras_models.jax_calls import exact_calls
from dask_train.keras_models.state import build_for_batch
from dask_train.predicting.server.keras_backends import Run


def make() -> JaxPredicting:
    """Make the backend."""
    return JaxPredicting()


class JaxPredicting:
    """See :class:`dask_train.predicting.server.keras_backends.KerasBackend`.

    Notes
    -----
    Keras' steps take a model's state and return it. The model's variables hold it between two batches, so that a
    function that looks at them sees what is; buffers are not donated, since the variables still refer to them while a
    step runs.
    """

    def take_threads(self, num_threads: int) -> None:
        """Let XLA, which reads it when its device is made, have that many threads."""
        take_threads(num_threads)

    def seed(self, number: int) -> None:
        """Do nothing: JAX draws from keys only."""

    def predicting(self, model: Any, *, eagerly: bool) -> Run:
        """``jax.jit`` of ``predict_step``."""
        exact = exact_calls()(model.predict_step)
        step = exact if eagerly else _compiled(model, exact)

        def run(x: Any) -> Any:
            state = _State(model.trainable_variables, model.non_trainable_variables)
            outputs, others = step(state.values, (keras.tree.map_structure(shared_array, x),))
            state.put((state.values[0], others))
            return outputs

        return run

    def testing(
        self, model: Any, packed: Callable[[Sequence[Any]], Any], columns: Sequence[np.ndarray]
    ) -> Callable[[Sequence[np.ndarray]], Any]:
        """``jax.jit`` of ``test_step``; its variables are made before, since none can be made while it is traced."""
        build_for_batch(model, packed(list(map(shared_array, columns))))
        step = _compiled(model, exact_calls()(model.test_step))

        def run(rows: Sequence[np.ndarray]) -> Any:
            state = _State(model.trainable_variables, model.non_trainable_variables, model.metrics_variables)
            logs, values = step(state.values, packed(list(map(shared_array, rows))))
            state.put(values)
            return logs

        return run


class _State:
    """What variables hold."""

    def __init__(self, *variables: Sequence[Any]) -> None:
        self._variables = variables
        self.values = tuple([variable.value for variable in some] for some in variables)

    def put(self, values: Sequence[Sequence[Any]]) -> None:
        """Let them hold what a step has returned, where that is something else."""
        for some, before, after in zip(self._variables, self.values, values, strict=True):
            for variable, old, new in zip(some, before, after, strict=True):
                if new is not old:
                    variable.assign(new)


def _compiled(model: Any, step: Callable[..., Any]) -> Callable[..., Any]:
    """Compile as Keras' own functions are."""
    return jax.jit(step) if model.jit_compile and not model.run_eagerly else step
