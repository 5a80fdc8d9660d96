"""Values of plain kinds as two files: JSON, and next to it the arrays, as NumPy's ``.npz``.

No class is named in them, so that code may move; what has been stored is read without running anything.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

VALUES, ARRAYS = "values.json", "arrays.npz"


def store(folder: Path, value: Any) -> None:
    """Write a value into an empty local folder.

    Parameters
    ----------
    value
        None, booleans, numbers, strings, bytes, arrays, and lists, tuples and dicts of them. Scalars of NumPy become
        Python's numbers, and tuples lists, except in keys of dicts.

    Raises
    ------
    TypeError
        Something in it is of another kind; the message says where.
    """
    arrays: list[np.ndarray] = []
    values = _plain(value, arrays, "")
    with (folder / ARRAYS).open("wb") as file:
        np.savez(file, **{str(number): array for number, array in enumerate(arrays)})  # type: ignore[arg-type]
    (folder / VALUES).write_text(json.dumps(values))


def stored(folder: Path) -> Any:
    """Return the value that :func:`store` has written there; its arrays are new."""
    with np.load(folder / ARRAYS, allow_pickle=False) as arrays:
        return _value(json.loads((folder / VALUES).read_text()), arrays)


def _plain(value: Any, arrays: list[np.ndarray], where: str) -> Any:
    """Turn a value into what JSON knows. Every object in it is of one entry, which tells a kind that JSON lacks."""
    if isinstance(value, np.generic):
        value = np.asarray(value) if _is_foreign(value.dtype) else value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [_plain(item, arrays, f"{where}[{place}]") for place, item in enumerate(value)]
    if isinstance(value, dict):
        pairs = [[_plain(key, arrays, where), _plain(item, arrays, f"{where}[{key!r}]")] for key, item in value.items()]
        return {"dict": pairs}
    if isinstance(value, bytes):
        arrays.append(np.frombuffer(value, np.uint8))
        return {"bytes": len(arrays) - 1}
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        if not _is_foreign(value.dtype):
            arrays.append(value)
            return {"array": len(arrays) - 1}
        arrays.append(np.ascontiguousarray(value).view(f"u{value.dtype.itemsize}").reshape(value.shape))
        return {"array of": [len(arrays) - 1, value.dtype.name]}
    raise TypeError(f"{where or 'The value'} is a {type(value).__name__}, which can't be stored.")


def _value(plain: Any, arrays: Any) -> Any:
    if isinstance(plain, list):
        return [_value(item, arrays) for item in plain]
    if not isinstance(plain, dict):
        return plain
    ((kind, content),) = plain.items()
    if kind == "dict":
        return {_key(_value(key, arrays)): _value(item, arrays) for key, item in content}
    if kind == "bytes":
        return arrays[str(content)].tobytes()
    if kind == "array":
        return arrays[str(content)]
    number, dtype = content
    return arrays[str(number)].view(_foreign(dtype))


def _key(value: Any) -> Any:
    """Return a key as it was: no list can be one."""
    return tuple(map(_key, value)) if isinstance(value, list) else value


def _is_foreign(dtype: np.dtype[Any]) -> bool:
    """Return whether NumPy's files can't hold it: bfloat16 and its like."""
    return dtype.isbuiltin == 2


def _foreign(name: str) -> np.dtype[Any]:
    import ml_dtypes  # type: ignore[import-untyped,unused-ignore]

    return np.dtype(getattr(ml_dtypes, name))
