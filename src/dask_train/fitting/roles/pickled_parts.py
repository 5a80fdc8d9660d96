"""Pickles in which parts of the model that is trained stand for those of the model where they are read."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Mapping
from typing import Any

import cloudpickle  # type: ignore[import-untyped]

# Before the key of a part of the model.
_PART = "the model's "


def dumps_with_parts(value: Any, parts: Mapping[str, Any], key_of: Callable[[Any], str | None]) -> bytes:
    """Pickle a value in which parts of the model stand for those of the model where it is read.

    Parameters
    ----------
    value
        Pickled by value, as cloudpickle does.
    parts
        By their keys.
    key_of
        Called with everything else in the value; returns the key of what stands for itself, too.
    """
    keys = {id(part): f"{_PART}{key}" for key, part in parts.items()}

    class Pickler(cloudpickle.Pickler):
        def persistent_id(self, each: Any) -> str | None:
            key = keys.get(id(each))
            return key_of(each) if key is None else key

    data = io.BytesIO()
    Pickler(data).dump(value)
    return data.getvalue()


def loads_with_parts(data: bytes, parts: Mapping[str, Any]) -> Any:
    """Read what :func:`dumps_with_parts` has pickled, with the parts of the model here."""

    class Unpickler(pickle.Unpickler):
        def persistent_load(self, key: str) -> Any:
            return part_of(parts, key)

    return Unpickler(io.BytesIO(data)).load()


def is_part(key: str) -> bool:
    """Return whether a key in a pickle names a part of the model."""
    return key.startswith(_PART)


def part_of(parts: Mapping[str, Any], key: str) -> Any:
    """Return the part of the model that a key in a pickle names.

    Raises
    ------
    LookupError
        There is none.
    """
    key = key.removeprefix(_PART)
    if key not in parts:
        raise LookupError(f"it refers to {key} of a model, which the model here does not have")
    return parts[key]
