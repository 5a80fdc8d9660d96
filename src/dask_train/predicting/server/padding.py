"""Batches that are filled up with made-up rows, and what shows that these change nothing of the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np


class Kept:
    """What variables hold now, for later.

    Parameters
    ----------
    variables
        Of any kind that has ``assign``.
    read
        Returns a snapshot of one.
    """

    def __init__(self, variables: Sequence[Any], read: Callable[[Any], np.ndarray]) -> None:
        self._read = read
        self._kept = [(variable, read(variable)) for variable in variables]

    def put_back(self) -> bool:
        """Let variables hold it again that hold something else; return whether there are such."""
        changed = [(variable, value) for variable, value in self._kept if _differ(value, self._read(variable))]
        for variable, value in changed:
            variable.assign(value)
        return bool(changed)


def _differ(one: np.ndarray, other: np.ndarray) -> bool:
    """Return whether arrays differ in any bit; NaN is NaN."""
    before, after = (np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in (one, other))
    return not np.array_equal(before, after)


def filled_up(rows: np.ndarray, row: np.ndarray, batch_size: int) -> np.ndarray:
    """Return the rows, and one again and again up to the size of a batch."""
    return np.concatenate([rows, np.repeat(row, batch_size - len(rows), axis=0)])


def other_rows(row: np.ndarray) -> list[np.ndarray]:
    """Return two rows with other values, ``(1, *row_shape)`` each; none if there are no others.

    Of floats the second is NaN, which gets into nearly all that is computed of it. The first is for what leaves NaN
    out, and is tried before: a model that loops until all rows have converged would not come to an end with NaN.
    """
    if not row.size:
        return []
    if row.dtype.kind == "f":
        with np.errstate(all="ignore"):
            far = np.maximum(2 * row + 1, 1)
        far, away = np.where(np.isfinite(far), far, 0).astype(row.dtype), np.full_like(row, np.nan)
    elif row.dtype.hasobject:
        far = away = np.full_like(row, "" if any(row.flat) else "a")
    else:
        far, away = (row == 0).astype(row.dtype), np.zeros_like(row)
    return [far, far if np.array_equal(row, away, equal_nan=row.dtype.kind == "f") else away]


def alike(one: np.ndarray, other: np.ndarray) -> bool:
    """Return whether outputs differ by rounding alone, as they may on a GPU."""
    if one.dtype.kind != "f":
        return np.array_equal(one, other)
    finite = np.abs(one[np.isfinite(one)])
    return np.allclose(one, other, rtol=1e-5, atol=1e-6 * float(finite.max(initial=0.0)), equal_nan=True)
