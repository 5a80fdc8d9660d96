"""Values as text that is the same in each process, by which what goes on is compared with what was begun."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

import numpy as np


def text_of(value: Any) -> str:
    """An estimator, a parameter, a splitter or a scorer as text, without addresses, and of arrays a digest."""
    if hasattr(value, "get_params") and not isinstance(value, type):
        params = value.get_params(deep=False)
        return f"{type(value).__qualname__}({', '.join(f'{name}={text_of(params[name])}' for name in sorted(params))})"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{text_of(name)}: {text_of(each)}" for name, each in value.items()) + "}"
    if isinstance(value, list | tuple | set | frozenset):
        texts = [text_of(each) for each in value]
        return f"[{', '.join(texts if isinstance(value, list | tuple) else sorted(texts))}]"
    if isinstance(value, np.ndarray):
        held = value.tolist() if value.dtype.hasobject else None
        data = text_of(held).encode() if held is not None else np.ascontiguousarray(value).tobytes()
        return f"array {value.shape} {value.dtype} {hashlib.blake2b(data, digest_size=8).hexdigest()}"
    if hasattr(value, "__qualname__"):
        return f"{getattr(value, '__module__', '')}.{value.__qualname__}"
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))
