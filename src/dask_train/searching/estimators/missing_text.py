"""Missing text in columns of features: marked in shared memory, which holds text alone, and missing for estimators.

A column is of ``str`` or of ``bytes``, which shared memory tells apart, so bytes of our own stand for nothing else.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from dask_train.collections.partition.text import column_texts

# One for each of what pandas has for missing values, since encoders take them for categories of their own.
_NONE, _NA, _NAN = (b"\0dask-train: missing " + kind for kind in (b"None", b"NA", b"nan"))


def marked(what: str, column: Any) -> Any:
    """Mark what is missing in a column of text, lazily of Dask's; other columns come back as they are."""
    dtype = column.dtype
    if not is_text(dtype):
        return column
    mark = partial(_marked, what, column.name)
    return column.map_partitions(mark, meta=(column.name, object)) if hasattr(column, "dask") else mark(column)


def unmarked(values: np.ndarray) -> np.ndarray:
    """Return the values of a column of text with what was missing."""
    import pandas as pd

    missing = {_NONE: None, _NA: pd.NA, _NAN: np.nan}
    texts = np.empty(len(values), object)
    texts[:] = [missing.get(value, value) if isinstance(value, bytes) else value for value in values]
    return texts


def is_text(dtype: Any) -> bool:
    """Return whether columns of a dtype hold text, or perhaps do, as objects."""
    is_object = isinstance(dtype, np.dtype) and dtype.kind == "O"
    return is_object or str(dtype).removeprefix("large_").startswith(("str", "binary"))


def _marked(what: str, name: Any, column: Any) -> Any:
    is_missing = column.isna().to_numpy(bool)
    there = column[~is_missing]
    if not is_missing.any() or (len(there) and not isinstance(there.iloc[0], str | bytes)):
        return column
    if len(there):
        column_texts(what, name, there)  # sees that it is text
    values = column.to_numpy(object).copy()
    for row in np.flatnonzero(is_missing):
        value = values[row]
        values[row] = _NONE if value is None else _NAN if isinstance(value, float) else _NA
    return type(column)(values, index=column.index, name=name, dtype=object)
