"""Values as text that is the same in each process, by which a resumed search is compared with the one begun."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from dask_train.identity.digest import code_digest, digest
from dask_train.identity.sources import Sources

# Their own texts leave nothing out.
_WHOLE = (str, bytes, int, float, complex, np.generic, type(None), type(...))


def text_of(value: Any) -> str:
    """Describe an estimator, a parameter, a splitter or a scorer as text, without addresses.

    Arrays and all other objects end with a digest, as their own text may leave out what counts; so do your functions
    and classes, whose code may change.
    """
    if hasattr(value, "get_params") and not isinstance(value, type):
        params = value.get_params(deep=False)
        arguments = ", ".join(f"{name}={text_of(params[name])}" for name in sorted(params))
        return f"{type(value).__qualname__}({arguments}){_code(type(value))}"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{text_of(name)}: {text_of(each)}" for name, each in value.items()) + "}"
    if isinstance(value, list | tuple | set | frozenset):
        texts = [text_of(each) for each in value]
        return f"[{', '.join(texts if isinstance(value, list | tuple) else sorted(texts))}]"
    if isinstance(value, np.ndarray):
        items = value.tolist() if value.dtype.hasobject else None
        data = text_of(items).encode() if items is not None else np.ascontiguousarray(value).tobytes()
        return f"array {value.shape} {value.dtype} {hashlib.blake2b(data, digest_size=8).hexdigest()}"
    if hasattr(value, "__qualname__"):
        return f"{getattr(value, '__module__', '')}.{value.__qualname__}{_code(value)}"
    text = re.sub(r" at 0x[0-9a-fA-F]+", "", repr(value))
    return text if isinstance(value, _WHOLE) and not _code(type(value)) else f"{text}{_digest(value)}"


def code_text(function: Any) -> str:
    """Describe a function as text, with a digest of its code; what it reads and fills does not count."""
    name = getattr(function, "__qualname__", type(function).__qualname__)
    return f"{name} #{code_digest(function)[:8]}"


def _code(value: Any) -> str:
    """Return a digest of a function or class of yours; nothing of one of an installed package."""
    module = getattr(value, "__module__", None) or "builtins"
    return _digest(value) if module == "__main__" or Sources().is_yours(module) else ""


def _digest(value: Any) -> str:
    try:
        return f" #{digest(value)[:8]}"
    except TypeError:  # such as a generator of splits, which stays in this process
        return ""
