"""Replicas on TensorFlow: steps as ``tf.function``, sums in NumPy inside them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import tensorflow as tf


def make() -> TensorFlowBackend:
    """The backend."""
    return TensorFlowBackend()


class TensorFlowBackend:
    """See :class:`dask_train.fit_roles.backends.base.Backend`."""

    @contextmanager
    def forgetting(self) -> Iterator[None]:
        """Gradients that graphs have registered are taken out of TensorFlow's table again.

        Keras' optimizers make one in each graph of a step (``ReplicaContext.all_reduce`` is a custom gradient), and the
        table, which has no public way out, keeps the graph, and every variable in it, for as long as the process
        lives: 10 MB for a model of 2.6 MB that Adam trains (TensorFlow 2.21).
        """
        from tensorflow.python.framework import ops

        table = getattr(getattr(ops, "gradient_registry", None), "_registry", {})
        known = set(table)
        try:
            yield
        finally:
            for name in [name for name in table if name not in known and name.startswith("CustomGradient-")]:
                del table[name]

    def compiled(self, step: Callable[[Any], Any], model: Any, batch: Any) -> Callable[[Any], Any]:
        """A ``tf.function`` that is traced once; Keras' ``run_eagerly`` runs the step as it is."""
        if model.run_eagerly:
            return step
        signature = tf.nest.map_structure(_any_number_of_rows, batch)
        # Keras' own functions are not converted by AutoGraph either; and NumPy has no place in XLA's.
        return tf.function(step, input_signature=[signature], autograph=False, jit_compile=False)

    def on_host(self, function: Callable[[list[np.ndarray]], list[np.ndarray]], tensors: Sequence[Any]) -> list[Any]:
        """``tf.numpy_function``: stateful, so TensorFlow keeps the order; aligned arrays come back without a copy."""
        if not tensors:
            return []

        def call(*arrays: np.ndarray) -> list[np.ndarray]:
            return function(list(arrays))

        found = tf.numpy_function(call, tensors, [tensor.dtype for tensor in tensors])
        for result, tensor in zip(found, tensors, strict=True) if not tf.executing_eagerly() else ():
            result.set_shape(tensor.shape)
        return list(found)

    def tell_host(self, function: Callable[[list[np.ndarray]], None], tensors: Sequence[Any]) -> None:
        """``tf.numpy_function`` without a result."""

        def call(*arrays: np.ndarray) -> np.ndarray:
            function(list(arrays))
            return np.zeros((), np.int32)

        tf.numpy_function(call, tensors, tf.int32)

    def assigning(self, variables: Sequence[Any]) -> Callable[[Sequence[np.ndarray]], None]:
        """One ``tf.function`` for all."""
        signature = [tf.TensorSpec(variable.shape, variable.dtype) for variable in variables]

        @tf.function(input_signature=signature, autograph=False)
        def assign(*values: Any) -> None:
            for variable, value in zip(variables, values, strict=True):
                variable.assign(value)

        def convert_and_assign(values: Sequence[np.ndarray]) -> None:
            assign(*[tf.cast(value, spec.dtype) for value, spec in zip(values, signature, strict=True)])

        return convert_and_assign

    def applying(self, optimizer: Any, variables: Sequence[Any], gradients: Sequence[np.ndarray]) -> Callable[[], None]:
        """A ``tf.function`` of the optimizer on tensors that share the arrays' memory."""
        signature = [tf.TensorSpec(variable.shape, variable.dtype) for variable in variables]
        shared = [tf.experimental.dlpack.from_dlpack(array.__dlpack__()) for array in gradients]

        @tf.function(input_signature=signature, autograph=False)
        def apply(*grads: Any) -> None:
            optimizer.apply(list(grads), list(variables))

        def convert_and_apply() -> None:
            apply(*[tf.cast(tensor, spec.dtype) for tensor, spec in zip(shared, signature, strict=True)])

        return convert_and_apply

    def dense(self, gradient: Any) -> Any:
        """Slices of an embedding as the whole table, in which equal rows are added."""
        return tf.convert_to_tensor(gradient)

    def parts_of_sparse(self, gradient: Any) -> list[Any] | None:
        """Of ``IndexedSlices``, which the gradients of embeddings are."""
        return [gradient.indices, gradient.values] if isinstance(gradient, tf.IndexedSlices) else None

    def sparse(self, parts: list[Any], gradient: Any) -> Any:
        """``IndexedSlices``."""
        indices, values = parts
        return tf.IndexedSlices(values, indices, gradient.dense_shape)

    def num_rows(self, column: Any) -> int:
        """Rows of a tensor."""
        return int(column.shape[0])

    def rows(self, column: Any, num_rows: int) -> Any:
        """A slice."""
        return column[:num_rows]

    def zeros(self, row_shape: tuple[int, ...], dtype: str) -> Any:
        """Zeros."""
        return tf.zeros((1, *row_shape), np.dtype(dtype))

    def counted(self, num_steps: int) -> Any:
        """A range."""
        return tf.data.Dataset.range(num_steps)

    def as_floatx(self, column: Any, floatx: str) -> Any:
        """A cast where it is needed."""
        is_other = isinstance(column, tf.Tensor) and column.dtype.is_floating and column.dtype != floatx
        return tf.cast(column, floatx) if is_other else column


def _any_number_of_rows(tensor: Any) -> Any:
    return tf.TensorSpec((None, *tensor.shape[1:]), tensor.dtype)
