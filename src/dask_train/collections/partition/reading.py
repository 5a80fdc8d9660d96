"""Columns of pandas, and arrays, as C-contiguous arrays of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dask_train.collections.partition.kinds import column_of
from dask_train.collections.partition.row_arrays import arrow_rows, object_rows
from dask_train.collections.partition.text import column_texts, text_rows

if TYPE_CHECKING:
    from dask_train.collections.partition.kinds import ColumnPlan
    from dask_train.collections.partition.plan import Read

# Rows of a matrix that are filled at a time, column by column: few enough to stay in the cache. 1M x 8 float64: 24 ms,
# all rows at once 51, a copy by itself 15; 20k x 784: 77, 142, 30.
BLOCK_ROWS = 1024


def read(where: str, one: Read, values: Sequence[Any]) -> Any:
    # One array of a batch, ``(n, *row_shape)``, C-contiguous; lists and objects are ``(0,)`` without rows. A sparse
    # matrix in rows, if it may be one.
    # Of arrays and columns of numbers there is no copy where they are C-contiguous and have the dtype already, of all
    # else one.
    value = values[one["piece"]]
    if one["columns"] is None:
        return value.tocsr() if "sparse" in one and hasattr(value, "tocsr") else _array(where, value)
    if not hasattr(value, "iloc"):
        raise _unlike(where, value, "a frame or a column")
    if one["matrix"] is None:
        column = one["columns"][0]
        return _read_column(where, _series(where, value, column), column, column["dtype"])
    matrix = np.empty((len(value), len(one["columns"])), one["matrix"])
    columns = [_read_column(where, _series(where, value, each), each, one["matrix"]) for each in one["columns"]]
    for start in range(0, len(matrix), BLOCK_ROWS):
        block = matrix[start : start + BLOCK_ROWS]
        for number, array in enumerate(columns):
            block[:, number] = array[start : start + BLOCK_ROWS]
    return matrix


def _array(where: str, value: Any) -> np.ndarray:
    if hasattr(value, "iloc"):
        raise _unlike(where, value, "an array")
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError(f"{where} has a masked array, whose mask would be lost; fill it first: .filled(value).")
    if type(value).__module__ == "cupy":  # whose arrays refuse to become NumPy's unasked
        value = value.get()
    array = np.asarray(value)
    if array.dtype == object or array.dtype.kind == "T":
        array = text_rows(f"of a {type(value).__name__} of {array.dtype} of {where}", array)
    if array.ndim == 0:
        raise ValueError(f"{where} has a {type(value).__name__} without an axis of rows. Make sparse ones dense.")
    return np.ascontiguousarray(array)


def _unlike(where: str, value: Any, others: str) -> TypeError:
    return TypeError(f"{where} has a {type(value).__name__}, where others have {others}. Make all partitions alike.")


def _series(where: str, value: Any, column: ColumnPlan) -> Any:
    if value.ndim == 1:
        return value
    if column["name"] not in value.columns:
        has = str(list(value.columns)[:20])[1:-1]
        raise ValueError(f"{where} has no column {column['name']!r}; it has {has}. Make all partitions alike.")
    return value[column["name"]]


def _read_column(where: str, series: Any, column: ColumnPlan, into: Any) -> np.ndarray:
    how, dtype, name = column["how"], column["dtype"], column["name"]
    if not len(series):  # an empty partition of a frame often has other dtypes
        return np.empty(0, dtype or "f8")
    if how == "text" or (how == "objects" and isinstance(series.iloc[0], str | bytes)):
        return column_texts(where, name, series)
    if how == "objects":
        return object_rows(where, name, series)
    actual = column_of(where, name, series.dtype)
    if how in {"arrow", "codes"}:
        if (actual["how"], actual["dtype"], actual["categories"]) != (how, dtype, column["categories"]):
            raise ValueError(_other(where, name, series.dtype, column))
        return arrow_rows(where, name, series) if how == "arrow" else series.cat.codes.to_numpy().astype(dtype)
    if actual["how"] not in {"plain", "nullable"} or not np.can_cast(actual["dtype"], dtype, "safe"):  # type: ignore[arg-type]
        raise ValueError(_other(where, name, series.dtype, column))
    numbers = series.to_numpy(dtype, na_value=np.nan) if actual["how"] == "nullable" else series.to_numpy()
    # NumPy calls it safe to make floats of these.
    may_round = series.dtype.kind in "iu" and series.dtype.itemsize > 4 and np.dtype(into).kind in "fc"
    if may_round and (np.abs(numbers, dtype="f8") >= 2.0**53).any():
        raise ValueError(
            f"Column {name!r} of {where} has integers beyond 53 bits, which float64 would round. Use .astype(float) to "
            "round them."
        )
    return np.ascontiguousarray(numbers, dtype)


def _other(where: str, name: Any, dtype: Any, column: ColumnPlan) -> str:
    if column["how"] == "codes" and str(dtype) == "category":
        return (
            f"The categories of column {name!r} of {where} are not those of the whole frame, so its codes would mean "
            f"something else. Find them anew: frame.assign(**{{{name!r}: frame[{name!r}].cat.as_unknown()}}), then "
            f".categorize(columns=[{name!r}])."
        )
    planned = "categories" if column["how"] == "codes" else f"{column['how']} of {column['dtype']}"
    return (
        f"Column {name!r} of {where} is {dtype}, and {planned} was expected from the frame's dtypes, or from the first "
        f"partition. Missing values may have made floats of integers. Give all partitions one dtype: "
        f"frame[{name!r}].astype('float64')."
    )
