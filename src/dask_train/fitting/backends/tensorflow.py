"""Synchronous workers on TensorFlow: steps as ``tf.function``, sums in NumPy inside them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from dask_train.compat.keras.optimizers import apply_nothing
from dask_train.compat.tensorflow import registered_gradients, unique_id
from dask_train.data.buffers import empty_bytes
from dask_train.data.columns import Column
from dask_train.fitting.backends.base import Derived, Slices, has_number_of_all
from dask_train.fitting.backends.tensorflow_graph import draws, may_be_kept, slices_below
from dask_train.fitting.backends.tensorflow_logs import derived_logs
from dask_train.fitting.backends.tensorflow_losses import (
    has_all_rows_alone,
    is_graph_tensor,
    mark_multiplied,
    of_all,
    sums_multiplied,
)
from dask_train.fitting.backends.tensorflow_moments import moments_of_all
from dask_train.fitting.backends.tried_gathers import TriedGathers


def make() -> TensorFlowBackend:
    """Make the backend."""
    return TensorFlowBackend()


class TensorFlowBackend:
    """See :class:`dask_train.fitting.backends.base.Backend`."""

    looked_at_rows = None
    symbolic_build = False
    takes_text = True
    graphs_tell_more = True
    refuses_losses = False
    _runs_as_written = False

    @property
    def may_lack_gradients(self) -> bool:
        """Eagerly; the graph of a step has the same ones on all workers."""
        return bool(tf.executing_eagerly())

    def refusal(self, model: Any, workers: int = 1) -> str | None:  # noqa: ARG002
        """XLA can't call back."""
        if model.jit_compile is True:
            return (
                "is compiled with jit_compile=True, and what XLA compiles can't agree with other processes in "
                "mid-step. Compile it with jit_compile=False."
            )
        return None

    @contextmanager
    def forgetting(self) -> Iterator[None]:
        """Gradients that graphs have registered are taken out of TensorFlow's table again.

        Keras' optimizers make one in each graph of a step (``ReplicaContext.all_reduce`` is a custom gradient), and the
        table, which has no public way out, keeps the graph, and every variable in it, for as long as the process
        lives: 10 MB for a model of 2.6 MB that Adam trains (TensorFlow 2.21).
        """
        table = registered_gradients()
        known = set(table)
        try:
            yield
        finally:
            for name in [name for name in table if name not in known and name.startswith("CustomGradient-")]:
                del table[name]

    def compiled(
        self, step: Callable[[Any], Any], model: Any, batch: Any, *, at_once: bool = False
    ) -> Callable[[Any], Any]:
        """Return a ``tf.function`` that is traced once; Keras' ``run_eagerly`` runs the step as it is."""
        if model.run_eagerly or self._runs_as_written:
            return step
        signature = tf.nest.map_structure(_any_number_of_rows, batch)
        # Keras' own functions are not converted by AutoGraph either; and XLA can't compile NumPy.
        traced = _Traced(tf.function(step, input_signature=[signature], autograph=False, jit_compile=False))
        if at_once:
            traced.trace()
        return traced

    @contextmanager
    def functions_run_as_written(self) -> Iterator[None]:
        """Let no ``tf.function`` be traced, nor run as it was traced.

        Steps run eagerly: in a graph code that AutoGraph converts where it is decorated could not run as it is written.
        """
        before, self._runs_as_written = tf.config.functions_run_eagerly(), True
        tf.config.run_functions_eagerly(True)
        try:
            yield
        finally:
            tf.config.run_functions_eagerly(before)
            self._runs_as_written = False

    def as_function(self, steps: Callable[[Any], Any], model: Any) -> Callable[..., Any]:  # noqa: ARG002
        """Return them: Keras calls its functions with an iterator alone."""
        return steps

    def derived(self, step: Callable[[Any], Any], variables: Sequence[Any]) -> Derived:
        """Return what the graph of a ``tf.function`` shows; of what is run eagerly nothing is known."""
        return derived_logs(step.graph, variables) if isinstance(step, _Traced) else Derived()

    def is_constant(self, number: Any) -> bool:
        """In a graph what TensorFlow knows as it is traced; of what is run eagerly, what counts no rows."""
        if tf.executing_eagerly():
            return not (isinstance(number, int) or tf.as_dtype(getattr(number, "dtype", np.float32)).is_integer)
        return not tf.is_tensor(number) or tf.get_static_value(number) is not None

    def on_host(self, function: Callable[[list[np.ndarray]], list[np.ndarray]], tensors: Sequence[Any]) -> list[Any]:
        """``tf.numpy_function``: stateful, so TensorFlow keeps the order; aligned arrays come back without a copy."""
        if not tensors:
            return []

        def call(*arrays: np.ndarray) -> list[np.ndarray]:
            return function(list(arrays))

        results = _listed(tf.numpy_function(call, tensors, [tensor.dtype for tensor in tensors]))
        for result, tensor in zip(results, tensors, strict=True) if not tf.executing_eagerly() else ():
            result.set_shape(tensor.shape)
        return results

    def exchanged(
        self, function: Callable[[list[np.ndarray]], Sequence[np.ndarray]], tensors: Sequence[Any], into: Sequence[Any]
    ) -> None:
        """``tf.numpy_function``, which takes aligned copies as they are; and so do variables."""
        dtypes = [tf.as_dtype(variable.dtype) for variable in into]

        def call(*arrays: np.ndarray) -> list[np.ndarray]:
            values = zip(function(list(arrays)), dtypes, strict=True)
            return [_aligned_copy(value, dtype.as_numpy_dtype) for value, dtype in values]

        new_values = _listed(tf.numpy_function(call, tensors, dtypes))
        for variable, value in zip(into, new_values, strict=True):
            variable.assign(tf.ensure_shape(value, variable.shape))

    def assigning(self, variables: Sequence[Any]) -> Callable[[Sequence[np.ndarray]], None]:
        """Return one ``tf.function`` for all."""
        signature = [tf.TensorSpec(variable.shape, variable.dtype) for variable in variables]

        @tf.function(input_signature=signature, autograph=False)
        def assign(*values: Any) -> None:
            for variable, value in zip(variables, values, strict=True):
                variable.assign(value)

        def convert_and_assign(values: Sequence[np.ndarray]) -> None:
            assign(*[tf.cast(value, spec.dtype) for value, spec in zip(values, signature, strict=True)])

        return convert_and_assign

    def applying(
        self, optimizer: Any, variables: Sequence[Any], gradients: Sequence[np.ndarray | None]
    ) -> Callable[[Sequence[tuple[np.ndarray, ...]]], None]:
        """Return a ``tf.function`` of the optimizer on tensors that share the arrays' memory, and on slices."""
        signature = [
            tf.IndexedSlicesSpec(variable.shape, variable.dtype, tf.int64, tf.int64)
            if gradient is None
            else tf.TensorSpec(variable.shape, variable.dtype)
            for variable, gradient in zip(variables, gradients, strict=True)
        ]
        shared = [
            None if array is None else tf.experimental.dlpack.from_dlpack(array.__dlpack__()) for array in gradients
        ]

        @tf.function(input_signature=signature, autograph=False)
        def apply(*grads: Any) -> None:
            if grads:
                optimizer.apply_gradients(zip(grads, variables, strict=True))
            else:  # Keras returns at once; moving averages and counters of all weights continue, though
                apply_nothing(optimizer)

        def convert_and_apply(slices: Sequence[tuple[np.ndarray, ...]]) -> None:
            waiting = iter(slices)
            converted_grads = []
            for tensor, spec, variable in zip(shared, signature, variables, strict=True):
                if tensor is not None:
                    converted_grads.append(tf.cast(tensor, spec.dtype))
                else:
                    indices, values = next(waiting)
                    shape = tf.constant(variable.shape, tf.int64)
                    converted_grads.append(
                        tf.IndexedSlices(tf.cast(values, variable.dtype), tf.cast(indices, tf.int64), shape)
                    )
            apply(*converted_grads)

        return convert_and_apply

    def at_end(self, outcome: Any, model: Any, function: Callable[[], None]) -> Any:  # noqa: ARG002
        """Call it: steps set variables as they go."""
        function()
        return outcome

    def at_this_point(self, function: Callable[[], None], variables: Sequence[Any]) -> Sequence[Any]:
        """``tf.numpy_function`` of each variable's value, which TensorFlow reads when it has been assigned."""

        def call(*_: np.ndarray) -> np.ndarray:
            function()
            return np.zeros((), np.float32)

        values = [variable.value if isinstance(variable, keras.Variable) else variable for variable in variables]
        return [tf.numpy_function(call, [tf.convert_to_tensor(value) for value in values], tf.float32)]

    def after(self, tensors: Sequence[Any]) -> AbstractContextManager[None]:
        """Return control dependencies."""
        some = [one for tensor in tensors for one in tf.nest.flatten(tensor, expand_composites=True) if one is not None]
        dependencies: AbstractContextManager[None] = tf.control_dependencies(some)
        return dependencies

    def gathering(self, global_rows: Callable[[], int]) -> AbstractContextManager[None]:  # noqa: ARG002
        """Do nothing: graphs take any number of rows."""
        return nullcontext()

    def gathered(
        self,
        gather: Callable[[list[np.ndarray]], list[np.ndarray]],
        tensors: Sequence[Any],
        rows_of: Callable[[int], int],  # noqa: ARG002
    ) -> list[Any]:
        """Do as :meth:`on_host`, of any number of rows."""

        def call(*arrays: np.ndarray) -> list[np.ndarray]:
            return gather(list(arrays))

        detached_tensors = [tf.stop_gradient(tensor) for tensor in tensors]
        results = _listed(tf.numpy_function(call, detached_tensors, [tensor.dtype for tensor in detached_tensors]))
        for result, tensor in zip(results, detached_tensors, strict=True) if not tf.executing_eagerly() else ():
            result.set_shape((None, *tensor.shape[1:]))
        return [of_all(result) for result in results]

    def derived_through(self, spread: Callable[[list[np.ndarray]], list[np.ndarray]], own: Any, everyones: Any) -> Any:
        """Return a ``tf.custom_gradient``."""

        def call(array: np.ndarray) -> np.ndarray:
            return spread([array])[0]

        @tf.custom_gradient  # type: ignore[untyped-decorator,unused-ignore]
        def through(own: Any, everyones: Any) -> Any:
            def derive(gradient: Any) -> Any:
                derivative = tf.numpy_function(call, [gradient], own.dtype)
                derivative.set_shape(own.shape)
                return derivative, None

            return tf.identity(everyones), derive

        return of_all(through(own, everyones))

    def has_rows_of_all(self, tensor: Any, own_rows: int, all_rows: int) -> bool:
        """Return whether it has, as the graph shows; by the number of rows in what is run eagerly."""
        if is_graph_tensor(tensor):
            return has_all_rows_alone(tensor)
        return has_number_of_all(tensor.shape[0], own_rows, all_rows)

    def row_shape_may_vary(self, tensor: Any, *, by_code: bool) -> bool:
        """Return whether a graph does not know it, or eager code may change it."""
        return None in tuple(tensor.shape[1:]) if is_graph_tensor(tensor) else by_code and len(tensor.shape) > 1

    def key_of(self, variable: Any) -> Any:
        """TensorFlow's own key of the variable."""
        return unique_id(variable.value if isinstance(variable, keras.Variable) else variable)

    def parts_of(self, gradient: Any, dtype: Any) -> list[Any]:
        """Return the parts of a gradient; of ``IndexedSlices`` two."""
        if isinstance(gradient, tf.IndexedSlices):
            return [gradient.indices, tf.cast(gradient.values, dtype)]
        return [tf.cast(gradient, dtype)]

    def slices_of(self, gradient: Any) -> list[Slices]:
        """Return the slices of ``IndexedSlices``, which the gradients of embeddings are."""
        return slices_below(gradient.indices, gradient.values) if isinstance(gradient, tf.IndexedSlices) else []

    def sparse(self, slices: list[Slices], gradient: Any) -> Any:
        """Make ``IndexedSlices`` of slices and their numbers.

        Raises
        ------
        ValueError
            There is no gradient to make one like, as of a table that only other workers have looked up in.
        """
        if not isinstance(gradient, tf.IndexedSlices):
            raise ValueError(
                f"There is no gradient of {gradient.path!r} on this worker, and a sparse one on another, which can't "
                "be summed where a step runs eagerly. Compile the model with run_eagerly=False, or pass workers=1."
            )
        indices = [tf.cast(piece.indices, gradient.indices.dtype) for piece in slices]
        values = [piece.values for piece in slices]
        if len(slices) == 1:
            return tf.IndexedSlices(values[0], indices[0], gradient.dense_shape)
        return tf.IndexedSlices(tf.concat(values, 0), tf.concat(indices, 0), gradient.dense_shape)

    def may_be_kept(self, tensor: Any) -> bool:
        """In a graph; what is returned to eager code is a copy."""
        return not isinstance(tensor, tf.__internal__.EagerTensor) and may_be_kept(tensor)

    def sums_multiplied(self, factor: Callable[[Any], Any], rows: Callable[[], int]) -> AbstractContextManager[None]:
        """In gradients that a ``tf.GradientTape`` takes."""
        return sums_multiplied(factor, rows)

    def moments_of_all(
        self,
        forward: Callable[[Sequence[Any]], list[Any]],
        backward: Callable[[Sequence[Any]], list[Any]],
        is_aside: Callable[[], bool],
    ) -> AbstractContextManager[None]:
        """Replace Keras' functions of moments while it lasts."""
        return moments_of_all(forward, backward, is_aside)

    def mark_multiplied(self, loss: Any) -> Any:
        """Mark it in the graph."""
        return mark_multiplied(loss)

    def is_by_row(self, loss: Any, rows: int) -> bool:
        """Return whether it is, as the graph shows, in which the number of rows is not known."""
        return len(loss.shape) > 0 and loss.shape[0] == (None if hasattr(loss, "graph") else rows)

    def learn(
        self, tried: Callable[[int], Any], gradients: Callable[[], list[Any]], model: Any, gathers: TriedGathers
    ) -> None:
        """Graphs tell all that is to be known."""

    def draws(self, step: Callable[[Any], Any]) -> bool:
        """Return whether there are operations of random numbers in its graph, or in functions that it calls."""
        return isinstance(step, _Traced) and draws(step.graph)

    def traced(self, function: Callable[[list[Any]], Any], columns: Sequence[Column]) -> None:
        """Make a graph of the function, as :meth:`compiled` makes that of a step, and drop it."""
        signature = [tf.TensorSpec((None, *column.row_shape), _dtype(column)) for column in columns]
        with self.forgetting():
            tf.function(function, autograph=False).get_concrete_function(signature)

    def counted(self, num_steps: int) -> Any:
        """Make a data set that counts steps."""
        return tf.data.Dataset.range(num_steps)

    def as_floatx(self, column: Any, floatx: str) -> Any:
        """Return a cast where it is needed."""
        is_other = isinstance(column, tf.Tensor) and column.dtype.is_floating and column.dtype != floatx
        return tf.cast(column, floatx) if is_other else column


class _Traced:
    """A ``tf.function`` with one signature: after its first call, its graph is called as it is.

    Finding the graph for its arguments, with a ``tf.function`` of one signature always the same, takes some 0.25 ms a
    call (TensorFlow 2.21): as long as a step of a small model.
    """

    def __init__(self, function: Any) -> None:
        self._function, self._concrete = function, None

    def __call__(self, batch: Any) -> Any:
        if self._concrete is not None:
            return self._concrete(batch)
        outputs = self._function(batch)  # the first call makes variables
        self.trace()
        return outputs

    def trace(self) -> None:
        """Make the graph, and the variables that its first call makes."""
        self._concrete = self._function.get_concrete_function()

    @property
    def graph(self) -> Any:
        """The graph, when it was called once."""
        assert self._concrete is not None
        return self._concrete.graph


def _aligned_copy(array: np.ndarray, dtype: Any) -> np.ndarray:
    """Return a copy in memory that TensorFlow takes as it is."""
    copy = empty_bytes(array.size * np.dtype(dtype).itemsize).view(dtype).reshape(array.shape)
    np.copyto(copy, array, casting="unsafe")
    return copy


def _dtype(column: Column) -> Any:
    dtype = np.dtype(column.dtype)
    return tf.string if column.is_text or dtype.kind in "US" else dtype


def _any_number_of_rows(tensor: Any) -> Any:
    return tf.TensorSpec((None, *tensor.shape[1:]), tensor.dtype)


def _listed(results: Any) -> list[Any]:
    """Return what a ``numpy_function`` has returned; one tensor comes by itself where it is run eagerly."""
    return list(results) if isinstance(results, list | tuple) else [results]
