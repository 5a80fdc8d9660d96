"""Arrays and frames as buffers of bytes: one that pickle has written, and those that it leaves where they are."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import cloudpickle  # type: ignore[import-untyped]


def packed(value: Any) -> list[memoryview]:
    """Return the buffers of a value: its pickle, then the memory that the pickle refers to, which is not copied.

    What is not contiguous, such as some rows of an array in Fortran's order, is copied into the pickle.
    """
    outside: list[pickle.PickleBuffer] = []
    inside: bytes = cloudpickle.dumps(value, protocol=5, buffer_callback=outside.append)
    return [memoryview(inside), *(buffer.raw() for buffer in outside)]


def unpacked(buffers: Sequence[memoryview]) -> Any:
    """Return the value whose buffers these are; its arrays lie in them."""
    return pickle.loads(buffers[0], buffers=buffers[1:])  # noqa: S301 - both ends are of one cluster
