"""Arrays of any framework, as NumPy's for a collective, and back in kind; imports no framework."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

_Back = Callable[[np.ndarray], Any]


@dataclass(frozen=True, kw_only=True)
class Taken:
    """What a caller has passed to a collective.

    Attributes
    ----------
    arrays
        It, as NumPy arrays in the machine's byte order: views where that can be.
    """

    arrays: list[np.ndarray]
    _back: list[_Back]
    _shape: type | None

    def given_back(self, results: Sequence[np.ndarray]) -> Any:
        """Results as the caller has passed the arrays: one, or a list or tuple, of the same kinds."""
        converted = [back(result) for back, result in zip(self._back, results, strict=True)]
        return converted[0] if self._shape is None else self._shape(converted)


def taken(call: str, value: Any) -> Taken:
    """Take an array, a tensor, a number, or a list or tuple of them.

    Parameters
    ----------
    call
        What errors say that it was passed to.
    value
        As the caller has passed it.

    Raises
    ------
    TypeError
        It is something else, or has a dtype that holds Python objects.
    """
    several = type(value) in (list, tuple)
    pairs = [_one(call, each) for each in (value if several else [value])]
    return Taken(
        arrays=[array for array, _ in pairs],
        _back=[back for _, back in pairs],
        _shape=type(value) if several else None,
    )


def _one(call: str, value: Any) -> tuple[np.ndarray, _Back]:
    array, back = _array(call, value)
    if array.dtype.hasobject or array.dtype.kind == "V":
        raise TypeError(
            f"{call} was given an array of {array.dtype}, which is no dtype of NumPy's own that every rank reads "
            "alike. Pass numbers or text of a fixed length, with astype('float32') or astype('U64') for instance."
        )
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    return array, back


def _array(call: str, value: Any) -> tuple[np.ndarray, _Back]:
    if type(value) in (bool, int, float, complex):
        return np.asarray(value), lambda result: result.item()
    if isinstance(value, np.generic):
        return np.asarray(value), lambda result: result[()]
    if isinstance(value, np.ndarray) and not isinstance(value, np.ma.MaskedArray):
        return np.asarray(value), lambda result: result
    package = type(value).__module__.partition(".")[0]
    if package in _TENSORS:
        try:
            return _TENSORS[package](value)
        except Exception as error:
            raise TypeError(
                f"{call} was given a {type(value).__name__} that can't be read as a NumPy array: {error} Pass a dense "
                "tensor with values, in host memory, of a dtype that NumPy has; outside of compiled functions."
            ) from error
    raise TypeError(
        f"{call} was given a {type(value).__name__}; pass a NumPy array, a tensor of torch, TensorFlow or JAX, a "
        "number, or a list or tuple of these. Dense arrays of frames and sparse matrices come with to_numpy() and "
        "toarray()."
    )


def _of_torch(tensor: Any) -> tuple[np.ndarray, _Back]:
    import torch

    return tensor.detach().cpu().numpy(), lambda result: torch.from_numpy(np.asarray(result)).to(tensor.device)


def _of_tensorflow(tensor: Any) -> tuple[np.ndarray, _Back]:
    import tensorflow as tf

    return np.asarray(tensor.numpy()), tf.convert_to_tensor


def _of_jax(array: Any) -> tuple[np.ndarray, _Back]:
    import jax.numpy as jnp

    return np.asarray(array), jnp.asarray


_TENSORS = {"torch": _of_torch, "tensorflow": _of_tensorflow, "jax": _of_jax, "jaxlib": _of_jax}
