"""Modules of torch as values that travel, and how they are called."""

from __future__ import annotations

import io
import itertools
import pickle
from collections.abc import Sequence
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import numpy as np
import torch
from torch.nn.utils import parametrize

from dask_train.compat.torch import make_parametrized

# Floating types that NumPy has under the same name, and those of weights that inputs are given in.
_NUMPY_FLOATS = {torch.float16, torch.float32, torch.float64}
_FLOATS = {*_NUMPY_FLOATS, torch.bfloat16}


def pickle_parts(value: Any) -> tuple[bytes, list[np.ndarray]]:
    """Pickle a module, or what holds some, with code that can't be imported; return its tensors as arrays, too.

    Tensors on the CPU are not copied. Which are one tensor stays so.
    """
    data = io.BytesIO()
    buffers: list[pickle.PickleBuffer] = []
    _Pickler(data, protocol=5, buffer_callback=buffers.append).dump(value)
    return data.getvalue(), [np.frombuffer(buffer.raw(), np.uint8) for buffer in buffers]


def unpickle_parts(header: bytes, arrays: Sequence[np.ndarray]) -> Any:
    """Return what :func:`pickle_parts` was given; each array is copied once."""
    return pickle.loads(header, buffers=[array.data for array in arrays])  # noqa: S301 - sent by the client


def unsendable_attribute(module: torch.nn.Module) -> str:
    """Describe an attribute of one of a module's tensors that can't be pickled; ``""`` if there is none."""
    for name, tensor in itertools.chain(module.named_parameters(), module.named_buffers()):
        for attribute, value in vars(tensor).items():
            try:
                pickle_parts(value)
            except Exception:
                return f"attribute {attribute!r} of its {name!r}"
    return ""


class _Pickler(cloudpickle.Pickler):
    """Leaves the bytes of tensors to buffers, which pickles of torch's own don't, and takes parametrized modules."""

    def reducer_override(self, value: Any) -> Any:
        if type(value) in (torch.Tensor, torch.nn.Parameter) and value.layout == torch.strided and value.is_leaf:
            strides = value.stride()
            order = sorted(range(value.dim()), key=lambda axis: -strides[axis])  # it stays what torch computes by
            plain = value.detach().cpu().resolve_conj().resolve_neg().permute(order).contiguous()
            if plain.numel() == 1:  # whose strides may be any, and count as contiguous
                plain = plain.clone(memory_format=torch.contiguous_format)
            array = plain.reshape(-1).view(torch.uint8).numpy() if plain.numel() else np.empty(0, np.uint8)
            is_parameter = isinstance(value, torch.nn.Parameter)
            how = array, str(value.dtype), tuple(plain.shape), order, is_parameter, value.requires_grad
            # Attributes of the user's own, such as marks for optimizers. A tensor's __setstate__ takes other states.
            return _tensor, how, vars(value) or None, None, None, _set_attributes
        if isinstance(value, torch.nn.Module) and parametrize.is_parametrized(value):
            cls = parametrize.type_before_parametrizations(value)
            state = cls.__getstate__(value), list(value.parametrizations)
            return _unparametrized, (cls,), state, None, None, _parametrize
        return super().reducer_override(value)


def _tensor(
    array: np.ndarray, dtype: str, shape: tuple[int, ...], order: list[int], is_parameter: bool, requires_grad: bool
) -> Any:
    kind = getattr(torch, dtype.rpartition(".")[2])
    tensor = torch.empty(shape, dtype=kind)
    if array.size:
        tensor.reshape(-1).view(torch.uint8).numpy()[:] = array
    tensor = tensor.permute([order.index(axis) for axis in range(len(order))])
    if is_parameter:
        return torch.nn.Parameter(tensor, requires_grad=requires_grad)
    return tensor.requires_grad_(requires_grad)


def _set_attributes(tensor: torch.Tensor, attributes: dict[str, Any]) -> None:
    vars(tensor).update(attributes)


def _unparametrized(cls: type[torch.nn.Module]) -> torch.nn.Module:
    return object.__new__(cls)


def _parametrize(module: torch.nn.Module, state: tuple[dict[str, Any], list[str]]) -> None:
    """Give a module its state, and a class of its own with properties for some tensors, as torch does."""
    attributes, names = state
    make_parametrized(module, names)
    module.__setstate__(attributes)


def check_shaped(module: torch.nn.Module) -> None:
    """Check that all weights of a module are there: each process would draw those of a lazy module for itself.

    Raises
    ------
    ValueError
        They are not.
    """
    name = type(module).__name__
    lazy = [own for own, one in module.named_parameters() if isinstance(one, torch.nn.parameter.UninitializedParameter)]
    lazy += [own for own, one in module.named_buffers() if isinstance(one, torch.nn.parameter.UninitializedBuffer)]
    if lazy:
        raise ValueError(
            f"{lazy[0]!r} of {name} has no shape yet: it is of a lazy module, which takes it from the first rows that "
            "it is called on. Call the module once before, as in model(torch.zeros(1, 20)) for rows of 20 numbers."
        )


def taken_dtype(module: torch.nn.Module, dtype: np.dtype) -> np.dtype:
    """Floats as the module's weights are, where these are of one type that NumPy has; others in native byte order."""
    float_dtype = _float_of(module)
    if dtype.kind == "f" and float_dtype in _NUMPY_FLOATS:
        return np.dtype(str(float_dtype).rpartition(".")[2])
    return dtype.newbyteorder("=")


def cast_to_weights(module: torch.nn.Module, rows: torch.Tensor) -> torch.Tensor:
    """Cast floats to the dtype of the module's weights, if all have the same; return other rows as they are."""
    float_dtype = _float_of(module)
    return rows.to(float_dtype) if float_dtype is not None and rows.is_floating_point() else rows


def _float_of(module: torch.nn.Module) -> torch.dtype | None:
    dtypes = {parameter.dtype for parameter in module.parameters() if parameter.is_floating_point()}
    return dtypes.pop() if len(dtypes) == 1 and dtypes <= _FLOATS else None


def device_of(module: torch.nn.Module) -> torch.device:
    """Return the device of a module's tensors; the CPU if it has none."""
    tensor = next(iter([*module.parameters(), *module.buffers()]), None)
    return torch.device("cpu") if tensor is None else tensor.device


def called(module: torch.nn.Module, x: Any) -> Any:
    """Return what a module makes of inputs: several of them are arguments, those in a dict by name."""
    if isinstance(x, dict):
        return module(**x)
    return module(*x) if isinstance(x, tuple | list) else module(x)
