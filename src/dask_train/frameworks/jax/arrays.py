"""Arrays of NumPy as arrays of JAX, on the same memory where JAX can share it."""

from __future__ import annotations

from typing import Any

import numpy as np


def shared_array(array: np.ndarray) -> Any:
    """Return an array of JAX, without a copy on the CPU if memory is aligned to 64 bytes; JAX never writes to it.

    Of another byte order than this machine's it is copied.

    Raises
    ------
    TypeError
        JAX has no such dtype.
    ValueError
        Whole numbers of 64 bits are too large for the 32 that JAX has unless it is set otherwise, in which they would
        wrap around. Floating-point numbers of 64 bits are rounded to 32 then, as JAX does.
    """
    import jax

    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    narrow = jax.dtypes.canonicalize_dtype(array.dtype)
    if narrow != array.dtype and array.dtype.kind in "iu" and array.size:
        low, high, room = int(array.min()), int(array.max()), np.iinfo(narrow)
        if low < room.min or high > room.max:
            raise ValueError(
                f"A batch has whole numbers from {low} to {high}, and JAX takes {narrow} in place of {array.dtype}, in "
                "which they would wrap around. Set JAX_ENABLE_X64=1 before jax is imported, or pass smaller numbers."
            )
    return jax.device_put(array)
