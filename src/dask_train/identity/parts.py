"""What a value consists of, as digests are made of it; arrays by their numbers."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np


class ValueParts(NamedTuple):
    """What a value consists of.

    Attributes
    ----------
    kind
        Distinguishes it from other values of the same content.
    content
        Values, which are looked into in turn.
    data
        Bytes besides, contiguous.
    """

    kind: str
    content: tuple[Any, ...]
    data: memoryview | None = None


def number_parts(value: Any) -> ValueParts:
    """Return an array, a number or a dtype of NumPy."""
    if isinstance(value, np.dtype):
        return ValueParts("dtype", (value.descr if value.names else value.str, repr(value.metadata)))
    array = np.asarray(value)
    about = (array.dtype.str, array.shape, isinstance(value, np.generic))
    if array.dtype.names:  # bytes between fields are anything
        fields = [array[name] for name in array.dtype.names]
        return ValueParts("fields", (*about, array.dtype.names, *fields))
    if array.dtype.hasobject or array.dtype.kind == "T":
        return ValueParts("objects", (*about, array.tolist()))
    masks = (np.ascontiguousarray(value.mask),) if isinstance(value, np.ma.MaskedArray) else ()
    return ValueParts("array", (*about, *masks), bytes_of(array))


def bytes_of(array: np.ndarray) -> memoryview:
    """Return the numbers of an array; a copy only where it is not contiguous."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
