"""Converts tensors and states of torch to arrays and plain values, which name no class of dask-train."""

from __future__ import annotations

import pickle
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import numpy as np
import torch

from dask_train.compat.torch import indices_and_values

# Integers of as many bytes, for tensors of dtypes that NumPy lacks.
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def as_array(tensor: torch.Tensor) -> np.ndarray:
    """Return a tensor's values without conversion, and without a copy if it is on the CPU; see :func:`as_tensor`."""
    plain = tensor.detach().cpu().resolve_conj().resolve_neg()
    try:
        return np.asarray(plain.numpy())
    except TypeError:  # bfloat16 and its like
        return np.asarray(plain.view(_BITS[plain.element_size()]).numpy())


def as_tensor(array: np.ndarray, dtype: torch.dtype) -> torch.Tensor:
    """Return the tensor of a dtype with the values of :func:`as_array`, on the memory of the array."""
    tensor = torch.from_numpy(array)
    return tensor if tensor.dtype == dtype else tensor.view(dtype)


def summed_in(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype in which gradients of a dtype are summed: float32 for those of 16 bits."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def plain(value: Any, *, copies: bool = True) -> Any:
    """Return a state as numbers, text, bytes, lists, arrays, and dicts of one entry for other kinds.

    Parameters
    ----------
    value
        The state.
    copies
        Whether to copy arrays, so that later steps do not change them. Default: true.
    """
    if isinstance(value, torch.Tensor):
        return _plain_tensor(value, copies=copies)
    if value is None or type(value) in (bool, int, float, str, bytes):
        return value
    if type(value) is list:
        return [plain(each, copies=copies) for each in value]
    if type(value) is tuple:
        return {"tuple": [plain(each, copies=copies) for each in value]}
    if type(value) in (dict, OrderedDict):
        return {"dict": [[plain(key, copies=copies), plain(each, copies=copies)] for key, each in value.items()]}
    return {"pickle": cloudpickle.dumps(value)}  # a function of a scheduler of the user's own, for instance


def _plain_tensor(value: torch.Tensor, *, copies: bool) -> dict[str, Any]:
    if value.is_sparse:  # momentum of sparse gradients
        parts = [*indices_and_values(value.detach()), list(value.shape), value.is_coalesced()]
        return {"sparse": [plain(part, copies=copies) for part in parts]}
    array = as_array(value)
    return {"tensor": [str(value.dtype).rpartition(".")[2], array.copy() if copies else array]}


def from_plain(value: Any, *, copies: bool = True) -> Any:
    """Return the state of :func:`plain`; tensors are copies, or without ``copies`` lie on the arrays."""
    if isinstance(value, list):
        return [from_plain(each, copies=copies) for each in value]
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind in ("tensor", "sparse"):
        return _opened_tensor(kind, content, copies=copies)
    if kind == "tuple":
        return tuple(from_plain(each, copies=copies) for each in content)
    if kind == "dict":
        return {from_plain(key): from_plain(each, copies=copies) for key, each in content}
    return pickle.loads(content)  # noqa: S301 - of a scheduler or module of the user's own, as its code is


def _opened_tensor(kind: str, content: list[Any], *, copies: bool) -> torch.Tensor:
    if kind == "sparse":
        *parts, is_coalesced = from_plain(content, copies=copies)
        return torch.sparse_coo_tensor(*parts, is_coalesced=is_coalesced, check_invariants=False)
    dtype, array = content
    return as_tensor(np.array(array) if copies else array, getattr(torch, dtype))


def state_of(module: torch.nn.Module) -> dict[str, Any]:
    """Return all tensors of a module, also those that its ``state_dict`` leaves out or renames, and extra states."""
    tensors = {name: tensor.detach() for name, tensor in _tensors_of(module).items()}
    return {"state": tensors, "extra": extra_states(module)}


def extra_states(module: torch.nn.Module) -> dict[str, Any]:
    """Return the extra states of a module's parts, by their names."""
    return {
        name: part.get_extra_state()
        for name, part in module.named_modules()
        if type(part).get_extra_state is not torch.nn.Module.get_extra_state
    }


def set_state(module: torch.nn.Module, state: Mapping[str, Any]) -> None:
    """Copy a state of :func:`state_of` into the tensors of a module.

    Raises
    ------
    ValueError
        The module has other tensors.
    """
    tensors, values = _tensors_of(module), state["state"]
    check_shapes(shapes_of(module), {name: tuple(one.shape) for name, one in values.items()})
    with torch.no_grad():
        for name, value in values.items():
            tensors[name].copy_(value)
    for name, value in state["extra"].items():
        module.get_submodule(name).set_extra_state(value)


def shapes_of(module: torch.nn.Module) -> dict[str, tuple[int, ...]]:
    """Return the shapes of all tensors of a module by name, for :func:`check_shapes`."""
    return {name: tuple(one.shape) for name, one in _tensors_of(module).items()}


def check_shapes(shapes: Mapping[str, tuple[int, ...]], others: Mapping[str, tuple[int, ...]]) -> None:
    """Check that a module has the tensors of the one that was trained, ``others``.

    Raises
    ------
    ValueError
        It has others.
    """
    if different := sorted(name for name in {**shapes, **others} if shapes.get(name) != others.get(name)):
        differences = ", ".join(
            f"{name!r}: {shapes.get(name)} here, and {others.get(name)} there" for name in different[:3]
        )
        raise ValueError(
            f"A module has other tensors than the one that was trained: {differences}. It makes or cuts some as it is "
            "called: give them their shapes when the module is made."
        )


def _tensors_of(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {
        **dict(module.named_parameters(remove_duplicate=False)),
        **dict(module.named_buffers(remove_duplicate=False)),
    }


def set_all(tensors: Sequence[torch.Tensor], arrays: Sequence[np.ndarray]) -> None:
    """Copy arrays of :func:`as_array` into tensors."""
    with torch.no_grad():
        for tensor, array in zip(tensors, arrays, strict=True):
            tensor.copy_(as_tensor(np.array(array), tensor.dtype))
