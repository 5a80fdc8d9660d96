"""torch modules for prediction: pickled by value with their tensors out of band, and run in batches."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import torch

from dask_train.compat.torch import uncompiled
from dask_train.data.columns import Column, Columns
from dask_train.data.structure import filled, leaves
from dask_train.errors import in_words
from dask_train.frameworks.torch.modules import (
    called,
    cast_to_weights,
    device_of,
    pickle_parts,
    unpickle_parts,
    unsendable_attribute,
)
from dask_train.frameworks.torch.shapes import is_of_dtypes, is_of_shapes
from dask_train.predicting.server.values import Call, in_dtype, outputs_of

# Kinds of :class:`~dask_train.predicting.server.values.ModelParts`.
MODULE, SCRIPT, EXPORTED = "torch", "torch-script", "torch-exported"


def kind_of(model: Any) -> tuple[str, torch.nn.Module]:
    """Return what a model of torch is, and the module that is called.

    Raises
    ------
    TypeError
        It is not one.
    """
    if isinstance(model, torch.export.ExportedProgram):
        return EXPORTED, model.module()
    if isinstance(model, torch.jit.ScriptModule):
        return SCRIPT, model
    model = uncompiled(model)  # of torch.compile, whose code is of this process alone
    if isinstance(model, torch.nn.Module):
        return MODULE, model
    raise TypeError(
        f"model is a {type(model).__name__}; pass a torch.nn.Module, a scripted or traced one, a program of "
        "torch.export, or a function that takes and returns arrays."
    )


def take_apart(kind: str, model: Any, module: torch.nn.Module) -> tuple[bytes, list[np.ndarray]]:
    """Return a module, with the code of classes that can't be imported, as a pickle; and its tensors as arrays.

    Tensors on the CPU are not copied. Which are one tensor stays so. What torch has compiled is in the pickle whole.

    Raises
    ------
    TypeError
        A tensor of the module has an attribute that can't be sent. Other errors are those of the pickle.
    """
    data = io.BytesIO()
    if kind == EXPORTED:
        torch.export.save(model, data)
        return data.getvalue(), []
    if kind == SCRIPT:
        torch.jit.save(module, data)
        return data.getvalue(), []
    try:
        return pickle_parts(module)
    except Exception as error:
        if attribute := unsendable_attribute(module):
            raise TypeError(
                f"model can't be sent to the workers, because of {attribute}: {in_words(error)} Delete it."
            ) from error
        raise


def open_parts(kind: str, header: bytes, arrays: Sequence[np.ndarray]) -> Any:
    """Return the module; each array is copied once."""
    if kind == EXPORTED:
        program = torch.export.load(io.BytesIO(header))
        if torch.cuda.is_available():
            program = torch.export.passes.move_to_device_pass(program, "cuda")
        return program.module()
    if kind == SCRIPT:
        return torch.jit.load(io.BytesIO(header), map_location="cpu")
    return unpickle_parts(header, arrays)


class TorchRunner:
    """A torch module that answers calls in this process, one at a time, on the GPU where there is one.

    Parameters
    ----------
    module : torch.nn.Module
        Of this process alone where ``num_threads`` is given; else the user's own, which stays where it is.
    num_threads
        Of the process.
    """

    def __init__(self, module: torch.nn.Module, num_threads: int | None) -> None:
        self._module = module
        if num_threads is not None:
            torch.set_num_threads(num_threads)
            if torch.cuda.is_available():
                module.to("cuda")
        self._is_users = num_threads is None
        self._device = device_of(module)

    def predict(
        self, call: Call, columns: Sequence[np.ndarray], out: Sequence[np.ndarray], beat: Callable[[], None]
    ) -> None:
        """Write what the module says of the rows into ``out``; predictions are copied once.

        Rows of the user's own process are copied, since modules may write to their input; others are read in place.

        See :class:`~dask_train.predicting.server.runners.Runner`.
        """
        num_rows = len(columns[0])
        if call.block_seed is not None:
            torch.manual_seed(call.block_seed)
        with _evaluating(self._module, is_users=self._is_users):
            for start in range(0, num_rows, call.batch_size):
                stop = min(start + call.batch_size, num_rows)
                batch = [column[start:stop] for column in columns]
                if self._is_users:
                    batch = [each.copy() for each in batch]
                if stop - start == 1 and isinstance(self._module, torch.fx.GraphModule):
                    batch = [np.repeat(each, 2, axis=0) for each in batch]  # torch.export has a code of its own for 1
                rows = [cast_to_weights(self._module, torch.from_numpy(each)).to(self._device) for each in batch]
                outputs = outputs_of("the module", call, _called(self._module, call.columns, rows), len(batch[0]))
                for output, column, target in zip(outputs, call.outputs, out, strict=True):
                    target[start:stop] = in_dtype("the module", _numpy(output), column)[: stop - start]
                beat()

    def evaluate(self, call: Call, columns: Sequence[np.ndarray], beat: Callable[[], None]) -> list[np.ndarray]:
        """Never asked: a module says of itself neither loss nor metrics."""
        raise NotImplementedError

    def logs(self, call: Call, columns: Sequence[np.ndarray], beat: Callable[[], None]) -> dict[str, Any]:
        """Refuse: a torch module is never asked for logs."""
        raise NotImplementedError


def described(module: torch.nn.Module, columns: Columns) -> tuple[Any, tuple[Column, ...]]:
    """As :func:`dask_train.predicting.server.keras_model.described`; two made-up rows go through the module, here."""
    description = " and ".join(
        f"rows of {np.dtype(column.dtype)} {column.row_shape or 'numbers'}" for column in columns
    )
    name = type(module).__name__
    try:
        sample_outputs = _of_two_rows(module, columns)
    except Exception as error:
        cast = (
            f"{in_words(error).rstrip('.')}. Cast the rows to the dtype that it takes, such as with astype('float32')."
        )
        raise ValueError(
            f"The data does not fit module {name!r}: it has {description}. "
            + (cast if is_of_dtypes(error) else in_words(error))
            + (
                " A module of torch.export takes any number of rows if it was exported with "
                "dynamic_shapes=({0: torch.export.Dim('rows')},)."
                if isinstance(module, torch.fx.GraphModule)
                else ""
            )
        ) from error
    places = Columns.of(sample_outputs)[0].features
    outputs = []
    for output in leaves(sample_outputs):
        if not isinstance(output, torch.Tensor) or output.ndim == 0 or len(output) != 2:
            shape = tuple(getattr(output, "shape", ())) or f"a {type(output).__name__}"
            raise ValueError(
                f"Module {name!r}: it made {shape} of 2 rows; it has to make a tensor with one row of each."
            )
        dtype = "float32" if output.dtype == torch.bfloat16 else str(output.dtype).rpartition(".")[2]
        outputs.append(Column(dtype=np.dtype(dtype).str, row_shape=tuple(output.shape[1:])))
    return places, tuple(outputs)


def _of_two_rows(module: torch.nn.Module, columns: Columns) -> Any:
    """Return the outputs for rows of zeros; where these fail, for ones, or for rows without values.

    Raises
    ------
    Exception
        What the zeros raise, where none of them go through.
    """
    device = device_of(module)

    def made_of(value: float, module: torch.nn.Module) -> Any:
        rows = [
            cast_to_weights(module, torch.from_numpy(np.full((2, *c.row_shape), value, c.dtype))).to(device)
            for c in columns
        ]
        with _evaluating(module, is_users=True):
            return _called(module, columns, rows)

    try:
        return made_of(0, module)
    except Exception as error:
        with suppress(Exception):
            return made_of(1, module)
        own, outputs = copy.deepcopy(module), []  # a copy, which may keep what comes of it
        if is_of_shapes(error, lambda: outputs.append(made_of(1, own))):
            raise
        if outputs:
            return outputs[0]
        raise ValueError(
            f"{in_words(error)} It was tried on rows of zeros. Where the rows of the data do go through, pass a "
            "function that calls the module on arrays, and meta=, what it makes of no rows."
        ) from error


def _numpy(output: torch.Tensor) -> np.ndarray:
    return (output.float() if output.dtype == torch.bfloat16 else output).cpu().numpy()


def _called(module: torch.nn.Module, columns: Columns, rows: Sequence[torch.Tensor]) -> Any:
    return called(module, filled(columns.features, rows.__getitem__))


@contextmanager
def _evaluating(module: torch.nn.Module, *, is_users: bool) -> Iterator[None]:
    """Without dropout and gradients; each submodule is afterwards in the mode in which it was.

    What the user's own module keeps of a call, such as a table of positions, may be trained with later: a tensor that
    was made in torch's inference mode never can.
    """
    training = [part for part in module.modules() if part.training]
    with suppress(NotImplementedError):  # a program of torch.export is as it was exported
        module.eval()
    try:
        with torch.no_grad() if is_users else torch.inference_mode():
            yield
    finally:
        for part in training:
            part.training = True
