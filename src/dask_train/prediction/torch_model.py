"""torch modules for prediction: pickled by value with their tensors beside, and run in batches."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import numpy as np
import torch

from dask_train.data.columns import Column
from dask_train.fit_roles.layout import Layout, filled, leaves
from dask_train.prediction.values import Call

# Floating types that NumPy has under the same name.
_NUMPY_FLOATS = {torch.float16, torch.float32, torch.float64}


def take_apart(module: torch.nn.Module) -> tuple[bytes, list[np.ndarray]]:
    """A module, with the code of classes that can't be imported, as a pickle; and its tensors as arrays.

    Tensors on the CPU are not copied. Which are one tensor stays so.
    """
    data = io.BytesIO()
    buffers: list[pickle.PickleBuffer] = []
    _Pickler(data, protocol=5, buffer_callback=buffers.append).dump(module)
    return data.getvalue(), [np.frombuffer(buffer.raw(), np.uint8) for buffer in buffers]


def open_parts(header: bytes, arrays: Sequence[np.ndarray]) -> Any:
    """The module; each array is copied once."""
    return pickle.loads(header, buffers=[array.data for array in arrays])  # noqa: S301 - sent by the client


class _Pickler(cloudpickle.Pickler):
    """Leaves the bytes of tensors to buffers, which pickles of torch's own don't."""

    def reducer_override(self, value: Any) -> Any:
        if type(value) in (torch.Tensor, torch.nn.Parameter) and value.layout == torch.strided and value.is_leaf:
            plain = value.detach().cpu().contiguous()
            array = plain.reshape(-1).view(torch.uint8).numpy() if plain.numel() else np.empty(0, np.uint8)
            is_parameter = isinstance(value, torch.nn.Parameter)
            return _tensor, (array, str(value.dtype), tuple(value.shape), is_parameter, value.requires_grad)
        return super().reducer_override(value)


def _tensor(array: np.ndarray, dtype: str, shape: tuple[int, ...], is_parameter: bool, requires_grad: bool) -> Any:
    kind = getattr(torch, dtype.rpartition(".")[2])
    tensor = torch.empty(shape, dtype=kind)
    if array.size:
        tensor.reshape(-1).view(torch.uint8).numpy()[:] = array
    if is_parameter:
        return torch.nn.Parameter(tensor, requires_grad=requires_grad)
    return tensor.requires_grad_(requires_grad)


def taken_dtype(module: torch.nn.Module, dtype: np.dtype) -> np.dtype:
    """Floats as the module's weights are, where these are of one type that NumPy has; others stay."""
    found = {parameter.dtype for parameter in module.parameters() if parameter.is_floating_point()}
    if dtype.kind == "f" and len(found) == 1 and found <= _NUMPY_FLOATS:
        return np.dtype(str(found.pop()).rpartition(".")[2])
    return dtype


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
        tensor = next(iter([*module.parameters(), *module.buffers()]), None)
        self._device = torch.device("cpu") if tensor is None else tensor.device

    def predict(
        self, call: Call, columns: Sequence[np.ndarray], out: Sequence[np.ndarray], beat: Callable[[], None]
    ) -> None:
        """Write what the module says of the rows into ``out``: rows are read without a copy, predictions copied once.

        See :class:`~dask_train.prediction.runners.Runner`.
        """
        num_rows = len(columns[0])
        with _evaluating(self._module):
            for start in range(0, num_rows, call.batch_size):
                stop = min(start + call.batch_size, num_rows)
                rows = [torch.from_numpy(column[start:stop]).to(self._device) for column in columns]
                found = leaves(_called(self._module, call.layout, rows))
                for output, target in zip(found, out, strict=True):
                    if output.ndim == 0 or len(output) != stop - start:
                        raise ValueError(_no_rows(tuple(output.shape), stop - start))
                    torch.from_numpy(target[start:stop]).copy_(output)
                beat()

    def evaluate(self, call: Call, columns: Sequence[np.ndarray], beat: Callable[[], None]) -> list[np.ndarray]:
        """Never asked: a module says of itself neither loss nor metrics."""
        raise NotImplementedError


def described(module: torch.nn.Module, layout: Layout, columns: Sequence[Column]) -> tuple[Any, tuple[Column, ...]]:
    """As :func:`dask_train.prediction.keras_model.described`; two rows of zeros go through the module, here."""
    told = " and ".join(f"rows of {np.dtype(column.dtype)} {column.row_shape or 'numbers'}" for column in columns)
    name = type(module).__name__
    tensor = next(iter([*module.parameters(), *module.buffers()]), None)
    device = "cpu" if tensor is None else tensor.device
    try:
        rows = [torch.from_numpy(np.zeros((2, *c.row_shape), c.dtype)).to(device) for c in columns]
        with _evaluating(module):
            found = _called(module, layout, rows)
    except Exception as error:
        raise ValueError(
            f"The data does not fit module {name!r}: it has {told}. {type(error).__name__}: {error}"
        ) from error
    places = Layout.of(found)[0].x
    outputs = []
    for output in leaves(found):
        if not isinstance(output, torch.Tensor) or output.ndim == 0 or len(output) != 2:
            shape = tuple(getattr(output, "shape", ())) or f"a {type(output).__name__}"
            raise ValueError(f"Module {name!r}: {_no_rows(shape, 2)}")
        dtype = "float32" if output.dtype == torch.bfloat16 else str(output.dtype).rpartition(".")[2]
        outputs.append(Column(dtype=np.dtype(dtype).str, row_shape=tuple(output.shape[1:])))
    return places, tuple(outputs)


def _no_rows(shape: Any, num_rows: int) -> str:
    return f"it made {shape} of {num_rows} rows; it has to make a tensor with one row of each."


def _called(module: torch.nn.Module, layout: Layout, rows: Sequence[torch.Tensor]) -> Any:
    x = filled(layout.x, rows.__getitem__)
    if isinstance(x, dict):
        return module(**x)
    return module(*x) if isinstance(x, tuple | list) else module(x)


@contextmanager
def _evaluating(module: torch.nn.Module) -> Iterator[None]:
    """Without dropout and gradients; each submodule is afterwards in the mode in which it was."""
    training = [part for part in module.modules() if part.training]
    module.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        for part in training:
            part.training = True
