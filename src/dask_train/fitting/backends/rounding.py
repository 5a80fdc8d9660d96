"""Tolerances for numbers that are equal up to rounding: gradients and logs of a batch and of its parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dask_train.compat.keras.layers import flatten_layers


def roundings(model: Any) -> tuple[float, float]:
    """Return how much gradients may differ by rounding alone, and how much logs may, relative to their size.

    Float64 has no room of its own, as Keras computes much of it in float32.
    """
    half = any("16" in str(getattr(layer, "compute_dtype", "")) for layer in flatten_layers(model))
    return (5e-2, 1e-2) if half else (2e-4, 1e-5)


# Of the largest gradient, in units of what may be rounded: what is left where a variable changes nothing, as a bias
# that a softmax or a batch normalisation takes off again.
ROUNDED = 5e-3


def is_mean(whole: Any, parts: Sequence[Any], shares: Sequence[float], room: float, noise: float = 0.0) -> bool:
    """Return whether what was computed of all rows is the mean of what was computed of parts of them."""
    value, *others = (np.asarray(one, np.float64) for one in (whole, *parts))
    mean = np.sum([share * other for share, other in zip(shares, others, strict=True)], axis=0)
    size = max(map(size_of, (value, *others)))
    return bool(np.allclose(value, mean, rtol=room, atol=max(room * size, noise), equal_nan=True))


def size_of(values: Any) -> float:
    """Return the largest absolute value that is finite; 0 if there is none."""
    return float(np.nan_to_num(np.abs(np.asarray(values, np.float64)), posinf=0.0).max(initial=0.0))
