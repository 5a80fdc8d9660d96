"""Synchronous workers on JAX: steps as ``jax.jit``, sums in NumPy inside them, by ordered callbacks."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial, wraps
from typing import Any

import jax
import keras
import numpy as np

from dask_train.compat.keras.internals import compute_output_spec
from dask_train.compat.keras.layers import flatten_layers
from dask_train.compat.keras.optimizers import apply_nothing, trained_variables
from dask_train.compat.keras.penalties import averages_activity
from dask_train.data.columns import Column
from dask_train.fitting.backends.base import Derived, Slices, has_number_of_all
from dask_train.fitting.backends.jax_step import (
    NUM_TRAINED,
    JaxStep,
    StepInHand,
    functions_run_as_written,
    is_own,
    variables_of,
)
from dask_train.fitting.backends.tried_gathers import TriedGathers
from dask_train.keras_models.jax_calls import exact_calls
from dask_train.keras_models.state import build_for_batch


def make() -> JaxBackend:
    """Make the backend."""
    return JaxBackend()


class JaxBackend:
    """See :class:`dask_train.fitting.backends.base.Backend`.

    Notes
    -----
    Keras' steps on JAX take what variables hold, and return what they are to hold. Here the variables have it between
    two steps, as on other backends, so that a callback may read or set them: no other copy counts.
    """

    looked_at_rows = None
    symbolic_build = True
    may_lack_gradients = False
    takes_text = False
    graphs_tell_more = False
    refuses_losses = True

    def __init__(self) -> None:
        self._now = StepInHand()

    def refusal(self, model: Any, workers: int = 1) -> str | None:
        """Return why a model can't be trained.

        What JAX would compute otherwise than asked for, and what was not tried.
        """
        if keras.config.floatx() == "float64" and not jax.config.jax_enable_x64:
            return (
                "is of float64, which JAX computes in float32 unless it is told otherwise. Set JAX_ENABLE_X64=1 before "
                "jax is imported."
            )
        if keras.config.is_nnx_enabled():
            return "keeps its variables in flax.nnx, which fit does not know. Leave KERAS_NNX_ENABLED unset."
        if keras.distribution.distribution() is not None:
            return "is laid out by keras.distribution, and fit lays out workers by itself. Set no distribution."
        own = [name for name in _UNTRIED if is_own(model, name)]
        if workers > 1 and own:
            return (
                f"has a {own[0]} of its own, of which several workers can't tell on JAX what its logs are made of. "
                "Leave it to Keras, and pass metrics to compile; or pass workers=1."
            )
        foreign = [layer for layer in flatten_layers(model) if isinstance(layer, keras.layers.JaxLayer)]
        if workers > 1 and foreign:
            return (
                f"has a {type(foreign[0]).__name__}, whose state several workers don't know how to share. Write it "
                "as a layer of Keras, or pass workers=1."
            )
        return _summed_penalty(model) if workers > 1 else None

    def functions_run_as_written(self) -> AbstractContextManager[None]:
        """Let them, where steps can't have traces of their own."""
        return functions_run_as_written()

    def as_function(self, steps: Callable[[Any], Any], model: Any) -> Callable[..., Any]:
        """Keras hands over what variables hold, and takes it from them; it is put back, and nothing is returned."""

        def function(state: Sequence[Sequence[Any]], iterator: Any) -> tuple[Any, tuple[list[Any], ...]]:
            for variables, values in zip(variables_of(model, trains=len(state) == NUM_TRAINED), state, strict=True):
                for variable, value in zip(variables, values, strict=False):  # none if they are where they belong
                    variable.assign(value)
            return steps(iterator), tuple([] for _ in state)

        return function

    def compiled(
        self,
        step: Callable[[Any], Any],
        model: Any,
        batch: Any,
        *,
        at_once: bool = False,  # noqa: ARG002
    ) -> Callable[[Any], Any]:
        """Return a ``jax.jit``, traced once for each number of rows; as it is where Keras would run it so."""
        build_for_batch(model, batch)
        return JaxStep(self._now, step, model)

    def learn(
        self,
        tried: Callable[[int], Any],
        gradients: Callable[[], list[Any]],
        model: Any,  # noqa: ARG002
        gathers: TriedGathers,
    ) -> str | None:
        """See :func:`dask_train.fitting.backends.jax_trial.check_step`."""
        self._now.gradients, self._now.gathers, self._now.doubt = gradients, gathers, None
        try:
            with self.functions_run_as_written():
                tried(1)
        finally:
            self._now.gradients = None
        return self._now.doubt

    def derived(self, step: Callable[[Any], Any], variables: Sequence[Any]) -> Derived:  # noqa: ARG002
        """Return what the step has shown as it was tried."""
        assert isinstance(step, JaxStep)
        return Derived(raw=step.raw)

    def mark_multiplied(self, loss: Any) -> Any:
        """Return the loss; in a step of Keras' that is tried without its gradient, so that others' are left."""
        is_left = self._now.gradients is None or self._now.step is None or self._now.step.is_own
        return loss if is_left else jax.lax.stop_gradient(loss)

    def is_by_row(self, loss: Any, rows: int) -> bool:  # noqa: ARG002
        """Return what has as many values as there are rows, for each number of rows that was tried."""
        return self._now.step is not None and self._now.step.is_by_row(loss, tries=self._now.gradients is not None)

    def is_constant(self, number: Any) -> bool:
        """Return whether a number counts no rows; whole numbers do."""
        if hasattr(number, "dtype"):
            return "int" not in keras.backend.standardize_dtype(number.dtype)
        return not isinstance(number, int)

    def on_host(self, function: Callable[[list[np.ndarray]], list[np.ndarray]], tensors: Sequence[Any]) -> list[Any]:
        """Return an ordered ``io_callback``, which is called once each time, whatever becomes of its results."""
        return self._on_host(function, tensors, [(tensor.shape, tensor.dtype) for tensor in tensors]) if tensors else []

    def exchanged(
        self, function: Callable[[list[np.ndarray]], Sequence[np.ndarray]], tensors: Sequence[Any], into: Sequence[Any]
    ) -> None:
        """Do as :meth:`on_host`; variables take over what comes in a step's own scope."""
        if self._now.traces or any(isinstance(tensor, jax.core.Tracer) for tensor in tensors):
            new_values = _called_back(function, tensors, [(variable.shape, variable.dtype) for variable in into])
        else:
            # Copies, since JAX shares memory.
            new_values = [np.array(one) for one in function([np.asarray(tensor) for tensor in tensors])]
        for variable, value in zip(into, new_values, strict=True):
            variable.assign(value)

    def assigning(self, variables: Sequence[Any]) -> Callable[[Sequence[np.ndarray]], None]:
        """Assign one after the other."""

        def assign(values: Sequence[np.ndarray]) -> None:
            for variable, value in zip(variables, values, strict=True):
                variable.assign(np.array(value))

        return assign

    def applying(
        self, optimizer: Any, variables: Sequence[Any], gradients: Sequence[np.ndarray | None]
    ) -> Callable[[Sequence[tuple[np.ndarray, ...]]], None]:
        """Return a ``jax.jit`` of the optimizer, on copies of the arrays; gradients of JAX are never slices."""
        assert all(array is not None for array in gradients)
        places, every = list(variables), [*optimizer.variables, *variables]
        scales = hasattr(optimizer, "inner_optimizer")

        @jax.jit
        def apply(values: Sequence[Any], grads: Sequence[Any]) -> list[Any]:
            pairs = list(zip(every, values, strict=True))
            if scales and grads:
                return _applied_scaled(optimizer, pairs, dict(zip(map(id, places), grads, strict=True)))
            with keras.StatelessScope(pairs) as scope:
                if grads:
                    optimizer.apply(grads, places)
                else:  # Keras returns at once; moving averages and counters of all weights continue, though
                    apply_nothing(optimizer)
            return [scope.get_current_value(variable) for variable in every]

        def apply_and_assign(_: Sequence[tuple[np.ndarray, ...]]) -> None:
            grads = [jax.numpy.array(array, variable.dtype) for array, variable in zip(gradients, places, strict=True)]
            new_values = apply([variable.value for variable in every], grads)
            for variable, value in zip(every, new_values, strict=True):
                variable.assign(value)

        return apply_and_assign

    def at_end(self, outcome: Any, model: Any, function: Callable[[], None]) -> Any:
        """Let variables have what the step returns, and return what they have then."""
        logs, values = outcome
        variables = variables_of(model, trains=True)
        every = itertools.chain.from_iterable
        with keras.StatelessScope(list(zip(every(variables), every(values), strict=True))) as scope:
            function()
        return logs, tuple([scope.get_current_value(variable) for variable in some] for some in variables)

    def at_this_point(self, function: Callable[[], None], variables: Sequence[Any]) -> Sequence[Any]:
        """Do as :meth:`on_host`, so it comes before the next sum; none of its values are in variables by then."""

        def call(arrays: list[np.ndarray]) -> list[np.ndarray]:
            with keras.StatelessScope(initialize_variables=False) as scope:
                for pair in zip(variables, arrays, strict=True):
                    scope.add_update(pair)
                function()
            return []

        self._on_host(call, [variable.value for variable in variables], [])
        return ()

    def after(self, tensors: Sequence[Any]) -> AbstractContextManager[None]:  # noqa: ARG002
        """Do nothing: callbacks are ordered, and a step sets no variable before it has returned."""
        return nullcontext()

    @contextmanager
    def gathering(self, global_rows: Callable[[], int]) -> Iterator[None]:
        """Let steps be traced once for each number of all rows as well."""
        self._now.global_rows = global_rows
        try:
            yield
        finally:
            self._now.global_rows = int

    def gathered(
        self,
        gather: Callable[[list[np.ndarray]], list[np.ndarray]],
        tensors: Sequence[Any],
        rows_of: Callable[[int], int],
    ) -> list[Any]:
        """Do as :meth:`on_host`, of as many rows as there are in all in the step that is traced."""
        detached_tensors = [jax.lax.stop_gradient(tensor) for tensor in tensors]
        like = [((rows_of(tensor.shape[0]), *tensor.shape[1:]), tensor.dtype) for tensor in detached_tensors]
        return self._on_host(gather, detached_tensors, like)

    def derived_through(self, spread: Callable[[list[np.ndarray]], list[np.ndarray]], own: Any, everyones: Any) -> Any:
        """Return a ``jax.custom_vjp``, which calls back when it is derived."""
        shape, dtype = own.shape, own.dtype

        @jax.custom_vjp
        def through(own: Any, everyones: Any) -> Any:  # noqa: ARG001 - by which it is derived
            return everyones

        def backward(_: None, gradient: Any) -> Any:
            return self._on_host(spread, [gradient], [(shape, dtype)])[0], jax.numpy.zeros_like(gradient)

        through.defvjp(lambda _, everyones: (everyones, None), backward)
        return through(own, everyones)

    def _on_host(
        self, function: Callable[[list[np.ndarray]], list[np.ndarray]], tensors: Sequence[Any], like: Sequence[Any]
    ) -> list[Any]:
        function = partial(_outside_of_step, function)
        if self._now.traces or any(isinstance(tensor, jax.core.Tracer) for tensor in tensors):
            return _called_back(function, tensors, like)
        return [jax.numpy.array(array) for array in function([np.asarray(tensor) for tensor in tensors])]

    def has_rows_of_all(self, tensor: Any, own_rows: int, all_rows: int) -> bool:
        """Return whether it has, by the number of rows."""
        return has_number_of_all(tensor.shape[0], own_rows, all_rows)

    def row_shape_may_vary(self, tensor: Any, *, by_code: bool) -> bool:
        """Return whether a step runs eagerly, and may: traced shapes follow from those of the data."""
        return by_code and not self._now.traces and len(tensor.shape) > 1

    def key_of(self, variable: Any) -> Any:
        """Return the identity of the Keras variable, whose arrays come and go."""
        return id(variable)

    def parts_of(self, gradient: Any, dtype: Any) -> list[Any]:
        """Return one tensor: all gradients are dense."""
        return [keras.ops.cast(gradient, dtype)]

    def slices_of(self, gradient: Any) -> list[Slices]:  # noqa: ARG002
        """None: all gradients are dense."""
        return []

    def sparse(self, slices: list[Slices], gradient: Any) -> Any:
        """Never asked: all gradients are dense."""
        raise NotImplementedError

    def may_be_kept(self, tensor: Any) -> bool:  # noqa: ARG002
        """Return False: what is returned is a copy."""
        return False

    def sums_multiplied(
        self,
        factor: Callable[[Any], Any],  # noqa: ARG002
        rows: Callable[[], int],  # noqa: ARG002
    ) -> AbstractContextManager[None]:
        """Nothing: a loss of a user's own has to be a mean, or have a value for each row; that is tried."""
        return nullcontext()

    def moments_of_all(self, *_: Any) -> AbstractContextManager[None]:
        """Do nothing: Keras refuses layers that synchronise statistics."""
        return nullcontext()

    def draws(self, step: Callable[[Any], Any]) -> bool:  # noqa: ARG002
        """Return False: never asked."""
        return False

    def traced(self, function: Callable[[list[Any]], Any], columns: Sequence[Column]) -> None:
        """Keras' own inference of shapes; the function is called twice, with different numbers of rows."""

        @wraps(function)
        def seen(*tensors: Any) -> Any:
            function(list(tensors))
            return jax.numpy.zeros(())

        with exact_calls():
            compute_output_spec(seen, *[_spec(column) for column in columns])

    def counted(self, num_steps: int) -> Any:
        """Make a data set that counts steps."""
        return _Counted(num_steps)

    def as_floatx(self, column: Any, floatx: str) -> Any:
        """Return a cast where it is needed."""
        return keras.ops.cast(column, floatx) if "float" in str(column.dtype) else column

    def forgetting(self) -> AbstractContextManager[None]:
        """Forget nothing by itself: what has been compiled goes with the functions."""
        return nullcontext()


# Methods of models that were not tried on several workers when they are a user's own.
_UNTRIED = ("test_step", "compute_metrics", "get_metrics_result")


def _summed_penalty(model: Any) -> str | None:
    """Return why several workers would not compute a penalty of activity as one does."""
    penalised = [one for one in flatten_layers(model) if getattr(one, "activity_regularizer", None) is not None]
    if not penalised or averages_activity():
        return None
    return (
        f"has layer {penalised[0].name!r} with an activity_regularizer, which Keras {keras.__version__} adds up over "
        "the rows of a batch; on JAX several workers take it for a mean over them. Install a later version of Keras, "
        "which divides it by the number of rows, or pass workers=1."
    )


def _outside_of_step(
    function: Callable[[list[np.ndarray]], list[np.ndarray]], arrays: list[np.ndarray]
) -> list[np.ndarray]:
    """Call it where variables have what they had before the step, also where the step runs eagerly.

    A worker that waits there may have to give the weights of that moment to one that takes a lost one's place.
    """
    with keras.StatelessScope(initialize_variables=False):
        return function(arrays)


def _called_back(
    function: Callable[[list[np.ndarray]], Sequence[np.ndarray]], tensors: Sequence[Any], like: Sequence[Any]
) -> list[Any]:
    specs = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in like]

    def call(*arrays: Any) -> list[np.ndarray]:
        results = function([np.asarray(array) for array in arrays])
        return [np.asarray(array, spec.dtype) for array, spec in zip(results, specs, strict=True)]

    return list(jax.experimental.io_callback(call, specs, *tensors, ordered=True))


def _applied_scaled(optimizer: Any, pairs: Sequence[tuple[Any, Any]], gradients_by_id: Mapping[int, Any]) -> list[Any]:
    """Return what these variables hold after a step of a loss scaler, whose ``apply`` can't be traced on JAX.

    ``gradients_by_id`` has gradients by the ``id`` of their variables.
    """
    values = {id(variable): value for variable, value in pairs}
    trained = trained_variables(optimizer)
    now, optimizer_values = optimizer.stateless_apply(
        [values[id(variable)] for variable in optimizer.variables],
        [gradients_by_id.get(id(variable)) for variable in trained],
        [values.get(id(variable), variable.value) for variable in trained],
    )
    values |= zip(map(id, [*trained, *optimizer.variables]), [*now, *optimizer_values], strict=True)
    return [values[id(variable)] for variable, _ in pairs]


class _Counted(keras.utils.PyDataset):
    """Numbers of steps, which are not used."""

    def __init__(self, num_steps: int) -> None:
        super().__init__()
        self._num_steps = num_steps

    def __len__(self) -> int:
        return self._num_steps

    def __getitem__(self, number: int) -> tuple[np.ndarray]:
        return (np.zeros((1, 1), np.float32),)


def _spec(column: Column) -> keras.KerasTensor:
    return keras.KerasTensor((None, *column.row_shape), keras.backend.standardize_dtype(np.dtype(column.dtype)))
