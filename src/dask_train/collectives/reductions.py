"""What arrays of all ranks can be reduced to, by dtype."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

_COMBINED_BY: dict[str, np.ufunc] = {"sum": np.add, "mean": np.add, "max": np.maximum, "min": np.minimum}
_NUMBERS, _ORDERED = "iufc", "biuf"


@dataclass(frozen=True)
class Reduction:
    """A sum, mean, maximum or minimum over ranks.

    Parameters
    ----------
    op
        ``"sum"``, ``"mean"``, ``"max"`` or ``"min"``. A sum keeps the dtype, and so does a mean of floats; that of
        integers is float64. NaN makes NaN of all of them. Of booleans there are maximum and minimum, of complex numbers
        sum and mean.
    """

    op: Any

    def __post_init__(self) -> None:
        if not isinstance(self.op, str) or self.op not in _COMBINED_BY:
            raise ValueError(f"op is {self.op!r}; it is 'sum', 'mean', 'max' or 'min'.")

    @property
    def combine(self) -> np.ufunc:
        """How two arrays become one."""
        return _COMBINED_BY[self.op]

    def before(self, array: np.ndarray) -> np.ndarray:
        """Return what of an array is combined: integers of less than 64 bits are summed in 64, where nothing overflows.

        Floats of 16 bits are summed in 32, and rounded once.

        Raises
        ------
        TypeError
            Its dtype has no such reduction.
        """
        kinds = _ORDERED if self.op in ("max", "min") else _NUMBERS
        if array.dtype.kind not in kinds:
            hint = "Pass x.astype(int)" if array.dtype.kind == "b" else "Pass numbers"
            raise TypeError(f"all_reduce(op={self.op!r}) was given an array of {array.dtype}. {hint}.")
        if array.dtype.kind in "iu":
            if self.op == "mean":
                return array.astype(np.float64)
            if self.op == "sum" and array.dtype.itemsize < 8:
                return array.astype(np.int64)
        if array.dtype == np.float16 and self.op in ("sum", "mean"):
            return array.astype(np.float32)
        return array

    def after(self, total: np.ndarray, dtype: np.dtype, num_ranks: int) -> np.ndarray:
        """Return the result, of what was combined.

        Raises
        ------
        OverflowError
            A sum of integers is larger than the dtype holds.
        """
        if self.op == "mean":
            mean: np.ndarray = np.asarray(total / num_ranks)
            return mean if dtype.kind in "iu" else mean.astype(dtype, copy=False)
        if total.dtype == dtype or dtype.kind == "f":
            return total.astype(dtype, copy=False)
        limits = np.iinfo(dtype)
        if total.size and (total.min() < limits.min or total.max() > limits.max):
            raise OverflowError(
                f"all_reduce(op='sum') of {dtype} came to {total.min()} to {total.max()}, and {dtype} holds "
                f"{limits.min} to {limits.max}. Pass x.astype('int64')."
            )
        return total.astype(dtype)
