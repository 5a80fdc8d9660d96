"""Tensors of TensorFlow, torch and JAX where users pass arrays: each counts as the NumPy array that it holds.

bfloat16, which NumPy has not, counts as float32, which holds all its values.
"""

from __future__ import annotations

from typing import Any

import numpy as np

_FRAMEWORKS = frozenset({"tensorflow", "torch", "jax", "jaxlib"})


def as_numpy(what: str, value: Any) -> Any:
    """Return a tensor as an array, without a copy where its framework needs none; all else but bfloat16 as it is.

    Parameters
    ----------
    what
        How errors call the data.
    value
        Whatever a user passed. No framework is imported for it.

    Raises
    ------
    TypeError
        It is a tensor that is no array, such as a sparse or a ragged one.
    """
    if type(value).__module__.partition(".")[0] not in _FRAMEWORKS or not hasattr(value, "shape"):
        return _in_numpys_own(value)
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        value = value.float() if str(value.dtype) == "torch.bfloat16" else value
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, RuntimeError, NotImplementedError) as error:
        raise TypeError(f"{what} has a {type(value).__name__} that is no array ({error}). Make one of it.") from error
    if array.shape != tuple(value.shape):
        raise TypeError(f"{what} has a {type(value).__name__}, which is no array. Make one of it, such as to_tensor().")
    return _in_numpys_own(array)


def _in_numpys_own(value: Any) -> Any:
    is_foreign = hasattr(value, "astype") and str(getattr(value, "dtype", "")) == "bfloat16"
    return value.astype(np.float32) if is_foreign else value
