"""Keras models that predict on TensorFlow: steps as ``tf.function``, batches read in place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from dask_train.data.text import may_be_text
from dask_train.frameworks.tensorflow.sharing import shared_tensor
from dask_train.predicting.server.keras_backends import Run


def make() -> TensorFlowPredicting:
    """Make the backend."""
    return TensorFlowPredicting()


class TensorFlowPredicting:
    """See :class:`dask_train.predicting.server.keras_backends.KerasBackend`."""

    def take_threads(self, num_threads: int) -> None:
        """Nothing: TensorFlow reads ``TF_NUM_INTRAOP_THREADS``, which a child process is started with."""

    def seed(self, number: int) -> None:
        """Do nothing: Keras draws from its seed generators."""

    def predicting(self, model: Any, *, eagerly: bool) -> Run:
        """Return a ``tf.function`` of ``predict_step``, with XLA where the model was compiled with it.

        Batches of a second shape get a graph for any number of rows.
        """

        def step(x: Any) -> Any:
            return model.predict_step((x,))

        function = step if eagerly or model.run_eagerly else _function(step, model, reduce_retracing=True)
        return lambda x: function(keras.tree.map_structure(_tensor, x))

    def testing(
        self, model: Any, packed: Callable[[Sequence[Any]], Any], columns: Sequence[np.ndarray]
    ) -> Callable[[Sequence[np.ndarray]], Any]:
        """Return a ``tf.function`` of ``test_step``."""
        if model.run_eagerly:
            return lambda rows: model.test_step(packed([tf.convert_to_tensor(row) for row in rows]))
        # Of any number of rows, as in Keras' own pipeline: with the number known it would weigh the losses of several
        # outputs by it.
        dtypes = [tf.string if may_be_text(column.dtype) else column.dtype for column in columns]
        signature = [
            tf.TensorSpec((None, *column.shape[1:]), dtype) for column, dtype in zip(columns, dtypes, strict=True)
        ]
        step = _function(lambda *rows: model.test_step(packed(rows)), model, input_signature=signature)
        return lambda rows: step(*map(tf.convert_to_tensor, rows))


def _function(step: Callable[..., Any], model: Any, **how: Any) -> Callable[..., Any]:
    """Return a ``tf.function`` as Keras' own: without AutoGraph, which would first rewrite our code."""
    return tf.function(step, autograph=False, jit_compile=bool(model.jit_compile), **how)


def _tensor(array: np.ndarray) -> Any:
    shared = shared_tensor(array)
    return tf.convert_to_tensor(array) if shared is None else shared
