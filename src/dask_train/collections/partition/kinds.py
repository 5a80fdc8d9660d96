"""What a column of a frame becomes, decided from its dtype alone, so that all partitions agree."""

from __future__ import annotations

import hashlib
from typing import Any, TypedDict

import numpy as np


class ColumnPlan(TypedDict):
    """One column of a frame.

    Keys
    ----
    name
        Its name; any, since those of pandas are.
    how
        ``"plain"`` numbers; ``"nullable"`` numbers with NaN for NA; ``"codes"`` of categories; ``"arrow"`` lists and
        tensors; ``"text"``; ``"objects"`` that should be arrays or text.
    dtype
        ``numpy.dtype.str`` of the result where it is known.
    categories
        A digest of them, which has to be the same in all partitions.
    """

    name: Any
    how: str
    dtype: str | None
    categories: str | None


def is_row_array(column: ColumnPlan) -> bool:
    # Whether a row of it is, or may be, an array rather than a number.
    return column["how"] in {"arrow", "objects"}


def column_of(where: str, name: Any, dtype: Any) -> ColumnPlan:
    # How a column of that dtype is read.
    import pandas as pd

    if isinstance(dtype, np.dtype):
        if dtype.kind in "biufc":
            return _column(name, "plain", dtype.str)
        if dtype.kind == "O":
            return _column(name, "objects")
    if isinstance(dtype, pd.StringDtype) or str(dtype).removeprefix("large_").startswith(("string[", "binary[")):
        return _column(name, "text", "|O")
    if isinstance(dtype, pd.CategoricalDtype):
        return _column(name, "codes", "<i8", digest(where, name, dtype.categories))
    if isinstance(dtype, pd.ArrowDtype) and (leaf := _leaf(dtype.pyarrow_dtype)) is not None:
        return _column(name, "arrow", np.dtype(leaf).str)
    if dtype.kind in "biuf" and not isinstance(dtype, pd.SparseDtype):
        number = dtype.numpy_dtype
        return _column(name, "nullable", number.str if number.kind == "f" else "<f8")
    raise TypeError(_refusal(where, name, dtype))


def ways_to_categories(name: Any) -> str:
    # How errors say to make categories of a column of Dask. Without persist, what categorize gives fails in Dask's
    # optimizer where this column alone is selected: "'index' is not in list" (dask 2026.8, _categorical.py:186).
    return (
        f"frame.astype({{{name!r}: pd.CategoricalDtype(values)}}), where values are those that there are; or "
        f"frame.categorize(columns=[{name!r}]).persist(), which reads the column to find them"
    )


def digest(where: str, name: Any, categories: Any) -> str:
    # What tells categories and their order from others.
    values = categories.tolist()
    if "__UNKNOWN_CATEGORIES__" in values:  # dask.dataframe.utils.UNKNOWN_CATEGORIES
        raise ValueError(
            f"The categories of column {name!r} of {where} are not known yet, so each partition would have codes of "
            f"its own. Make them known, with {ways_to_categories(name)}."
        )
    return hashlib.sha256(repr(values).encode()).hexdigest()[:16]


def _column(name: Any, how: str, dtype: str | None = None, categories: str | None = None) -> ColumnPlan:
    return {"name": name, "how": how, "dtype": dtype, "categories": categories}


def _leaf(kind: Any) -> Any:
    # The dtype in Arrow's lists or tensors; None if they are neither, or hold no numbers.
    import pyarrow as pa  # type: ignore[import-untyped]

    lists = (pa.ListType, pa.LargeListType, pa.FixedSizeListType, pa.FixedShapeTensorType)
    nested = False
    while isinstance(kind, lists):
        kind, nested = kind.value_type, True
    numbers = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    return kind.to_pandas_dtype() if nested and numbers else None


def _refusal(where: str, name: Any, dtype: Any) -> str:
    import pandas as pd

    what, column = f"Column {name!r} of {where} is {dtype}", f"frame[{name!r}]"
    if isinstance(dtype, pd.PeriodDtype) or dtype.kind == "M":
        return f"{what}, a date. Make numbers of it, such as {column}.dt.hour or .dt.dayofweek, and name those."
    if dtype.kind == "m":
        return f"{what}, a span of time. Make numbers of it, such as {column}.dt.total_seconds()."
    if str(dtype).startswith("dictionary"):
        return f"{what}. Make categories of it: {column}.astype('category'), of a Dask frame with .cat.as_known()."
    return f"{what}, which is no number. Leave it out of features, or make it one: {column}.astype('float64')."
