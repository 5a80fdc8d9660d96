"""Pickles in which parts of the model that is trained stand for those of the model where they are read."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Mapping
from typing import Any

import cloudpickle  # type: ignore[import-untyped]

# Before the key of a part of the model.
_PART = "the model's "


def keys_by_id(parts: Mapping[str, Any]) -> dict[int, str]:
    """Return what stands in pickles for parts of the model, by the id of each; ``parts`` are by their keys."""
    return {id(part): f"{_PART}{key}" for key, part in parts.items()}


def dumps_with_parts(value: Any, keys: Mapping[int, str], key_of: Callable[[Any], str | None]) -> bytes:
    """Pickle a value in which parts of the model stand for those of the model where it is read.

    Parameters
    ----------
    value
        Pickled by value, as cloudpickle does.
    keys
        Of the parts, as :func:`keys_by_id` returns them.
    key_of
        Called with everything else in the value; returns the key of what stands for itself, too.
    """

    class Pickler(cloudpickle.Pickler):
        def persistent_id(self, each: Any) -> str | None:
            key = keys.get(id(each))
            return key_of(each) if key is None else key

    data = io.BytesIO()
    Pickler(data).dump(value)
    return data.getvalue()


def loads_with_parts(data: bytes, parts: Mapping[str, Any], of_key: Callable[[str], Any]) -> Any:
    """Read what :func:`dumps_with_parts` has pickled, with the parts of the model here.

    Parameters
    ----------
    data
        Sent by the client, from our own role process, or of a checkpoint.
    parts
        By their keys.
    of_key
        Called with the key of what else stands for itself; returns that.

    Raises
    ------
    LookupError
        It refers to a part that the model here does not have.
    """

    class Unpickler(pickle.Unpickler):
        def persistent_load(self, key: str) -> Any:
            if not key.startswith(_PART):
                return of_key(key)
            name = key.removeprefix(_PART)
            if name not in parts:
                raise LookupError(f"it refers to {name} of a model, which the model here does not have")
            return parts[name]

    return Unpickler(io.BytesIO(data)).load()
