"""Arrays as tensors on the same memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from dask_train.data.alignment import is_aligned

# In this machine's byte order.
_SHARED_DTYPES = frozenset(
    np.dtype(f"{kind}{size}")
    for kind, sizes in {"b": (1,), "i": (1, 2, 4, 8), "u": (1, 2, 4, 8), "f": (2, 4, 8), "c": (8, 16)}.items()
    for size in sizes
)


def shared_tensor(array: np.ndarray) -> Any:
    """Return a tensor on an array's memory; None if TensorFlow can't share it, such as memory not aligned."""
    import tensorflow as tf

    flags = array.flags
    if array.dtype in _SHARED_DTYPES and flags.c_contiguous and flags.writeable and is_aligned(array.ctypes.data):
        return tf.experimental.dlpack.from_dlpack(array.__dlpack__())
    return None
