"""Columns of pandas in which each row is an array: objects, and Arrow's lists and tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

DROP = "Drop such rows, with frame.dropna(), or fill them."


def object_rows(where: str, name: Any, series: Any) -> np.ndarray:
    # Rows that are arrays or lists, ``(n, *shape)``, C-contiguous; one copy.
    at = f"of column {name!r} of {where}"
    values = series.to_numpy()
    first = _row(f"Row 0 {at}", values[0])
    rows = np.empty((len(values), *first.shape), first.dtype)
    for number, value in enumerate(values):
        row = _row(f"Row {number} {at}", value)
        if row.shape != first.shape:
            raise ValueError(_unequal(at, number, first.shape, row.shape))
        if row.dtype != first.dtype:
            raise ValueError(f"Rows 0 and {number} {at} are of {first.dtype} and {row.dtype}. Make them of one dtype.")
        rows[number] = row
    return rows


def arrow_rows(where: str, name: Any, series: Any) -> np.ndarray:
    # Rows that are Arrow's lists, of any depth, or tensors, ``(n, *shape)``; no copy where they lie in one chunk.
    array = series.array.__arrow_array__()
    array = array.combine_chunks() if hasattr(array, "combine_chunks") else array
    return np.ascontiguousarray(_arrow(f"of column {name!r} of {where}", array, ()))


def _row(at: str, value: Any) -> np.ndarray:
    if value is None or (isinstance(value, float) and np.isnan(value)):
        raise TypeError(f"{at} is missing. {DROP}")
    try:
        array = np.asarray(value)
        if array.dtype == object and array.ndim:  # arrays in arrays, as Parquet's nested lists come
            array = np.stack([_row(at, inner) for inner in array])
    except ValueError as error:
        raise ValueError(f"{at} is a {type(value).__name__} whose parts differ in shape: {error}.") from error
    if array.dtype.kind not in "biufc":
        raise TypeError(f"{at} is a {type(value).__name__}, no array of numbers. Make it one, or leave the column out.")
    return array


def _arrow(at: str, array: Any, outer: tuple[int, ...]) -> np.ndarray:
    import pyarrow as pa  # type: ignore[import-untyped]

    per_row = int(np.prod(outer, dtype=np.int64))
    if isinstance(array.type, pa.FixedShapeTensorType):
        _check_none_missing(at, array, per_row)
        return np.asarray(array.to_numpy_ndarray())
    if not pa.types.is_nested(array.type):
        if array.null_count and not pa.types.is_floating(array.type):
            _check_none_missing(at, array, per_row)
        return np.asarray(array.to_numpy(zero_copy_only=False))
    _check_none_missing(at, array, per_row)
    lengths = np.asarray(array.value_lengths()) if len(array) else np.zeros(1, np.int64)
    if (odd := np.flatnonzero(lengths != lengths[0])).size:
        shapes = [(*outer, int(lengths[number])) for number in (0, odd[0])]
        raise ValueError(_unequal(at, int(odd[0]) // per_row, *shapes))
    length = int(lengths[0])
    inner = _arrow(at, array.flatten(), (*outer, length))
    return inner.reshape(len(array), length, *inner.shape[1:])


def _check_none_missing(at: str, array: Any, per_row: int) -> None:
    if array.null_count:
        missing = int(np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))[0]) // per_row
        raise ValueError(f"Row {missing} {at} is missing, or a value in it is. {DROP}")


def _unequal(at: str, number: int, first: tuple[int, ...], other: tuple[int, ...]) -> str:
    return (
        f"Rows 0 and {number} {at} have shapes {first} and {other}; all rows have to have the same. Resize or pad them."
    )
