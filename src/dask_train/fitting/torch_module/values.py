"""Tensors, and states that hold some, as arrays and plain values: no class of ours is named in them."""

from __future__ import annotations

import pickle
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

# Integers of as many bytes, for tensors of dtypes that NumPy lacks.
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def as_array(tensor: torch.Tensor) -> np.ndarray:
    """A tensor's values as they are, in memory of the tensor's own where it lies on the CPU; see :func:`as_tensor`."""
    plain = tensor.detach().cpu().resolve_conj().resolve_neg()
    try:
        return np.asarray(plain.numpy())
    except TypeError:  # bfloat16 and its like
        return np.asarray(plain.view(_BITS[plain.element_size()]).numpy())


def as_tensor(array: np.ndarray, dtype: torch.dtype) -> torch.Tensor:
    """The tensor of that dtype whose values :func:`as_array` has given, on the memory of the array."""
    found = torch.from_numpy(array)
    return found if found.dtype == dtype else found.view(dtype)


def plain(value: Any) -> Any:
    """A state as numbers, text, bytes, lists, arrays, and dicts of one entry that tell of other kinds."""
    if isinstance(value, torch.Tensor):
        return {"tensor": [str(value.dtype).rpartition(".")[2], as_array(value).copy()]}
    if value is None or type(value) in (bool, int, float, str, bytes):
        return value
    if type(value) is list:
        return [plain(each) for each in value]
    if type(value) is tuple:
        return {"tuple": [plain(each) for each in value]}
    if type(value) in (dict, OrderedDict):
        return {"dict": [[plain(key), plain(each)] for key, each in value.items()]}
    return {"pickle": pickle.dumps(value)}


def opened(value: Any) -> Any:
    """The state that :func:`plain` has taken apart; its tensors are new."""
    if isinstance(value, list):
        return [opened(each) for each in value]
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "tensor":
        dtype, array = content
        return as_tensor(np.array(array), getattr(torch, dtype))
    if kind == "tuple":
        return tuple(opened(each) for each in content)
    if kind == "dict":
        return {opened(key): opened(each) for key, each in content}
    return pickle.loads(content)  # noqa: S301 - of a scheduler or module of the user's own, as its code is


def state_of(module: torch.nn.Module) -> dict[str, Any]:
    """All tensors of a module, those that its ``state_dict`` leaves out as well."""
    state = module.state_dict()
    others = {name: buffer for name, buffer in module.named_buffers(remove_duplicate=False) if name not in state}
    return {"state": dict(state), "others": others}


def set_state(module: torch.nn.Module, state: Mapping[str, Any]) -> None:
    """Copy what :func:`state_of` has given into the tensors of a module."""
    values = OrderedDict(state["state"])
    values._metadata = module.state_dict()._metadata  # type: ignore[attr-defined]
    module.load_state_dict(values)
    with torch.no_grad():
        buffers = dict(module.named_buffers(remove_duplicate=False))
        for name, value in state["others"].items():
            buffers[name].copy_(value)


def set_all(tensors: Sequence[torch.Tensor], arrays: Sequence[np.ndarray]) -> None:
    """Copy what :func:`as_array` has given into tensors."""
    with torch.no_grad():
        for tensor, array in zip(tensors, arrays, strict=True):
            tensor.copy_(as_tensor(np.array(array), tensor.dtype))
