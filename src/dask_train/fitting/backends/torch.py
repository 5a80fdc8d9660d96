"""Synchronous workers on torch: steps as they are, run eagerly, and sums in NumPy between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from typing import Any

import keras
import ml_dtypes
import numpy as np
import torch

from dask_train.compat.keras.internals import compute_output_spec, get_stateless_scope
from dask_train.compat.keras.optimizers import apply_nothing
from dask_train.data.columns import Column
from dask_train.fitting.backends.base import Derived, Slices, StepError, has_number_of_all
from dask_train.fitting.backends.torch_logs import derived_logs, followed_results, unfollowed
from dask_train.fitting.backends.torch_losses import Sums, mark_multiplied
from dask_train.fitting.backends.tried_gathers import TriedGathers


def make() -> TorchBackend:
    """Make the backend."""
    return TorchBackend()


class TorchBackend:
    """See :class:`dask_train.fitting.backends.base.Backend`."""

    symbolic_build = True
    looked_at_rows = 89  # were it open, Keras would call twice, with 83 rows and 89; its own fit calls once
    may_lack_gradients = True
    takes_text = False
    graphs_tell_more = False
    refuses_losses = False

    def refusal(self, model: Any, workers: int = 1) -> str | None:  # noqa: ARG002
        """Return why a model can't be trained; what Keras' own ``fit`` refuses on torch is among it."""
        if model.jit_compile is True:
            return (
                "is compiled with jit_compile=True, and what torch compiles can't agree with other processes in "
                "mid-step. Compile it with jit_compile=False."
            )
        if model.steps_per_execution != 1:
            return (
                f"is compiled with steps_per_execution={model.steps_per_execution}, and Keras on torch takes one step "
                "at a time. Compile it with steps_per_execution=1."
            )
        return None

    def __init__(self) -> None:
        self._sums = Sums()

    def compiled(
        self,
        step: Callable[[Any], Any],
        model: Any,
        batch: Any,  # noqa: ARG002
        *,
        at_once: bool = False,  # noqa: ARG002
    ) -> Callable[[Any], Any]:
        """Return the step itself, as Keras runs it on torch; one that only tests keeps nothing for gradients."""
        return _Step(torch.no_grad()(step) if step == model.test_step else step, self._sums)

    def learn(
        self,
        tried: Callable[[int], Any],
        gradients: Callable[[], list[Any]],  # noqa: ARG002
        model: Any,  # noqa: ARG002
        gathers: TriedGathers,
    ) -> None:
        """Learn which parts of losses are sums over rows.

        Raises
        ------
        StepError
            The step takes the batch, and not its rows twice.
        """

        def begun(times: int) -> None:
            gathers.begin()
            tried(times)

        try:
            self._sums.learn(begun)
        except Exception as error:
            try:
                begun(1)
            except Exception:  # what is wrong with the step itself is seen when it is taken
                return
            raise StepError(
                f"A step of this model takes a batch, and not the same rows twice: {type(error).__name__}: {error}. So "
                "it can't be seen which of its losses are sums over rows, and what several workers add up could be "
                "wrong. Let it take any number of rows, or pass workers=1."
            ) from error

    def functions_run_as_written(self) -> AbstractContextManager[None]:
        """Do nothing: what is traced is not known to this backend."""
        return nullcontext()

    def as_function(self, steps: Callable[[Any], Any], model: Any) -> Callable[..., Any]:  # noqa: ARG002
        """Return them: Keras calls its functions with an iterator alone."""
        return steps

    def derived(self, step: Callable[[Any], Any], variables: Sequence[Any]) -> Derived:  # noqa: ARG002
        """Return what was followed in the step that was run; later ones are not followed."""
        assert isinstance(step, _Step)
        return step.derived()

    def is_constant(self, number: Any) -> bool:
        """Return whether a number counts no rows; whole numbers do."""
        if isinstance(number, torch.Tensor):
            return number.is_floating_point()
        return not isinstance(number, int | np.integer)

    def on_host(self, function: Callable[[list[np.ndarray]], list[np.ndarray]], tensors: Sequence[Any]) -> list[Any]:
        """Return a call; what it returns is copied, since optimizers of a user's own may keep it or write to it."""
        results = function([as_array(tensor) for tensor in tensors]) if tensors else []
        return [as_tensor(np.array(array), like=tensor) for array, tensor in zip(results, tensors, strict=True)]

    def exchanged(
        self, function: Callable[[list[np.ndarray]], Sequence[np.ndarray]], tensors: Sequence[Any], into: Sequence[Any]
    ) -> None:
        """Make a call, and copy values into variables."""
        self.assigning(into)(function([as_array(tensor) for tensor in tensors]))

    def assigning(self, variables: Sequence[Any]) -> Callable[[Sequence[np.ndarray]], None]:
        """Assign one after the other."""

        @torch.no_grad()
        def assign(values: Sequence[np.ndarray]) -> None:
            for variable, value in zip(variables, values, strict=True):
                variable.value.copy_(as_tensor(value))

        return assign

    def applying(
        self, optimizer: Any, variables: Sequence[Any], gradients: Sequence[np.ndarray | None]
    ) -> Callable[[Sequence[tuple[np.ndarray, ...]]], None]:
        """Return the optimizer on copies of the arrays, which its ``apply`` may write to, and on sparse tensors."""
        places = list(variables)

        @torch.no_grad()
        def apply(slices: Sequence[tuple[np.ndarray, ...]]) -> None:
            waiting = iter(slices)
            grads = []
            for variable, array in zip(places, gradients, strict=True):
                like = variable.value
                if array is not None:
                    grads.append(as_tensor(np.array(array), like=like))
                else:
                    indices, values = next(waiting)
                    grads.append(_sparse(as_tensor(np.array(indices)), as_tensor(np.array(values), like=like), like))
            if grads:
                optimizer.apply(grads, places)
            else:  # Keras returns at once; moving averages and counters of all weights continue, though
                apply_nothing(optimizer)

        return apply

    def at_end(self, outcome: Any, model: Any, function: Callable[[], None]) -> Any:  # noqa: ARG002
        """Call it: steps set variables as they go."""
        function()
        return outcome

    def at_this_point(self, function: Callable[[], None], variables: Sequence[Any]) -> Sequence[Any]:  # noqa: ARG002
        """Call it: steps run as they are written."""
        function()
        return ()

    def after(self, tensors: Sequence[Any]) -> AbstractContextManager[None]:  # noqa: ARG002
        """Tensors are there; and Keras applies gradients where none are derived."""
        return torch.no_grad()

    def gathering(self, global_rows: Callable[[], int]) -> AbstractContextManager[None]:  # noqa: ARG002
        """Do nothing: steps take any number of rows."""
        return nullcontext()

    def gathered(
        self,
        gather: Callable[[list[np.ndarray]], list[np.ndarray]],
        tensors: Sequence[Any],
        rows_of: Callable[[int], int],  # noqa: ARG002
    ) -> list[Any]:
        """Return new tensors; arrays that were gathered are not shared."""
        gathered_arrays = gather([as_array(tensor) for tensor in tensors])
        return [as_tensor(array, like=tensor) for array, tensor in zip(gathered_arrays, tensors, strict=True)]

    def derived_through(self, spread: Callable[[list[np.ndarray]], list[np.ndarray]], own: Any, everyones: Any) -> Any:
        """Return a function of torch's graph of gradients."""
        return _Through.apply(own, everyones, spread) if own.requires_grad else everyones

    def has_rows_of_all(self, tensor: Any, own_rows: int, all_rows: int) -> bool:
        """Return whether it has, by the number of rows."""
        return has_number_of_all(tensor.shape[0], own_rows, all_rows)

    def row_shape_may_vary(self, tensor: Any, *, by_code: bool) -> bool:
        """Return whether code may: steps run as they are written."""
        return by_code and len(tensor.shape) > 1

    def key_of(self, variable: Any) -> Any:
        """Return the identity of the parameter, which stays the same."""
        return id(variable.value if isinstance(variable, keras.Variable) else variable)

    def parts_of(self, gradient: Any, dtype: Any) -> list[Any]:
        """Return the parts of a gradient; of a sparse one two."""
        wanted = keras.backend.standardize_dtype(dtype)
        if gradient.is_sparse:
            coalesced = gradient.coalesce()
            return [coalesced.indices()[0], keras.ops.cast(coalesced.values(), wanted)]
        return [keras.ops.cast(gradient, wanted)]

    def slices_of(self, gradient: Any) -> list[Slices]:
        """Return the slices of a sparse gradient, for modules of torch: Keras' embeddings have dense ones."""
        if gradient is None or not gradient.is_sparse:
            return []
        if gradient.sparse_dim() != 1:
            raise ValueError(
                f"A gradient of shape {tuple(gradient.shape)} is sparse in {gradient.sparse_dim()} dimensions, and "
                "only rows of a table can be summed over workers. Make it dense, or pass workers=1."
            )
        coalesced = gradient.coalesce()
        return [Slices(coalesced.indices()[0], coalesced.values(), alike=False, distinct=True)]

    def sparse(self, slices: list[Slices], gradient: Any) -> Any:
        """Return a sparse tensor; of several slices of a row their sum, as torch has it."""
        indices, values = torch.cat([one.indices for one in slices]), torch.cat([one.values for one in slices])
        return _sparse(indices, values, gradient)

    def may_be_kept(self, tensor: Any) -> bool:  # noqa: ARG002
        """Return False: what is returned is a copy."""
        return False

    def sums_multiplied(self, factor: Callable[[Any], Any], rows: Callable[[], int]) -> AbstractContextManager[None]:  # noqa: ARG002
        """In gradients by weights, of what :meth:`learn` has found to be sums."""
        return self._sums.multiplied(factor)

    def mark_multiplied(self, loss: Any) -> Any:
        """Mark it in the graph of gradients."""
        return mark_multiplied(loss) if loss.requires_grad else loss

    def is_by_row(self, loss: Any, rows: int) -> bool:
        """Return whether it has as many values as the step has rows."""
        return len(loss.shape) > 0 and loss.shape[0] == rows

    def moments_of_all(self, *_: Any) -> AbstractContextManager[None]:
        """Do nothing: Keras refuses layers that synchronise statistics."""
        return nullcontext()

    def draws(self, step: Callable[[Any], Any]) -> bool:  # noqa: ARG002
        """Return False: the states of generators tell."""
        return False

    def traced(self, function: Callable[[list[Any]], Any], columns: Sequence[Column]) -> None:
        """Keras' own inference of shapes: tensors of the meta device, or of ones where an operation has none there."""

        @wraps(function)
        def seen(*tensors: Any) -> Any:
            get_stateless_scope().collect_losses = True  # a model may have no other losses than those of its layers
            function(list(tensors))
            return torch.zeros(())

        compute_output_spec(seen, *[_spec(column, self.looked_at_rows) for column in columns])

    def counted(self, num_steps: int) -> Any:
        """Make a data loader that counts steps."""
        # A generator of its own: a loader takes a number from torch's each time it begins, and one that is resumed
        # begins once more.
        return torch.utils.data.DataLoader(_Steps(num_steps), batch_size=None, generator=torch.Generator())

    def as_floatx(self, column: Any, floatx: str) -> Any:
        """On Keras' device, cast where it is needed, also from whole numbers without a sign, of which torch has few."""
        column = keras.ops.convert_to_tensor(column)
        if column.is_floating_point():
            return keras.ops.cast(column, floatx)
        return column.to(_SIGNED[column.dtype]) if column.dtype in _SIGNED else column

    def forgetting(self) -> AbstractContextManager[None]:
        """There are no graphs that stay."""
        return nullcontext()


# As Keras takes them in on torch.
_SIGNED = {torch.uint16: torch.int32, torch.uint32: torch.int64, torch.uint64: torch.int64}


class _Through(torch.autograd.Function):
    """What was gathered of all workers, derived by this worker's part."""

    @staticmethod
    def forward(ctx: Any, own: Any, everyones: Any, spread: Callable[[list[np.ndarray]], list[np.ndarray]]) -> Any:
        ctx.spread, ctx.like = spread, own.detach()
        return everyones.view_as(everyones)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        (derivative,) = ctx.spread([as_array(gradients[0])])
        return as_tensor(derivative, like=ctx.like), None, None


class _Step:
    """A step, in which metrics' results are followed until it is known what its logs are made of."""

    def __init__(self, step: Callable[[Any], Any], sums: Sums) -> None:
        self._step, self._sums = step, sums
        self._follows, self._logs = True, None

    def __call__(self, batch: Any) -> Any:
        self._sums.begin_step()
        if not self._follows:
            return self._step(batch)
        with followed_results():
            self._logs = self._step(batch)
        return unfollowed(self._logs)

    def derived(self) -> Derived:
        """Return what the logs were made of."""
        logs, self._logs, self._follows = self._logs, None, False
        return derived_logs(logs)


class _Steps(torch.utils.data.Dataset[Any]):
    """Numbers of steps, which are not used."""

    def __init__(self, num_steps: int) -> None:
        self._num_steps = num_steps

    def __len__(self) -> int:
        return self._num_steps

    def __getitem__(self, number: int) -> tuple[torch.Tensor]:
        if number >= self._num_steps:
            raise IndexError(number)
        return (torch.zeros(1),)


def as_array(tensor: Any) -> np.ndarray:
    """Return the values of a tensor, or of a variable, in memory that they share on the CPU."""
    value = tensor.value if isinstance(tensor, keras.Variable) else tensor
    value = value.detach().cpu()
    if value.dtype == torch.bfloat16:  # NumPy has it from ml_dtypes, and torch does not know that
        return value.contiguous().view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    array: np.ndarray = value.numpy()
    return array


def as_tensor(array: np.ndarray, like: Any = None) -> torch.Tensor:
    """Return a tensor that shares the memory of an array, but where ``like`` has another device or dtype."""
    if array.dtype == ml_dtypes.bfloat16:
        tensor = torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    else:
        tensor = torch.from_numpy(array)
    return tensor if like is None else tensor.to(like.device, like.dtype)


def _sparse(indices: torch.Tensor, values: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    return torch.sparse_coo_tensor(indices[None].to(torch.int64), values, like.shape, check_invariants=True)


def _spec(column: Column, rows: int) -> keras.KerasTensor:
    return keras.KerasTensor((rows, *column.row_shape), keras.backend.standardize_dtype(np.dtype(column.dtype)))
