"""Targets and weights of rows that are scored: all there, or an error."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np


def check_none_missing(what: str, values: Any) -> None:
    """Check that each value is there, and a number finite: a score would count others as wrong, or become NaN.

    Parameters
    ----------
    what
        How errors call the values.
    values
        An array of any dtype, or a column of pandas.

    Raises
    ------
    ValueError
        Some are missing or infinite.
    """
    if hasattr(values, "isna"):
        missing = int(np.sum(values.isna().to_numpy()))
        values = np.empty(0) if missing or getattr(values.dtype, "kind", "O") != "f" else as_array(values)
    elif values.dtype.kind == "O":
        missing = sum(map(_is_missing, values.ravel()))
    else:
        missing = 0
    if values.dtype.kind in "fcmM":
        missing += int((~np.isfinite(values)).sum())
    if missing:
        raise ValueError(
            f"{missing:,} {what} are missing or infinite, so there is no score. Leave such rows out, with "
            "frame.dropna(subset=[...]) for instance."
        )


def as_array(column: Any) -> np.ndarray:
    """Values of a column of pandas in which none is missing: of nullable numbers exact, in NumPy's own dtype."""
    dtype = column.dtype
    is_nullable = not isinstance(dtype, np.dtype) and hasattr(dtype, "numpy_dtype") and dtype.kind in "biuf"
    values: np.ndarray = column.to_numpy(dtype.numpy_dtype) if is_nullable else column.to_numpy()
    return values


def _is_missing(value: Any) -> bool:
    try:
        return value is None or bool(value != value)  # noqa: PLR0124 - NaN is not itself
    except TypeError:  # pandas' NA is no truth value
        return True


def with_nan_text(frame: Any) -> Any:
    """Return a frame or column of pandas whose missing text is NaN: scikit-learn's encoders do not know pandas' NA.

    Text is of pandas' dtype ``str`` then, whether some is missing or not: a fold, or a partition, where none is has the
    same dtypes as others, by which pipelines choose columns.
    """
    if frame.ndim == 1:
        return _with_nan(frame) if _has_na(frame.dtype) else frame
    text_columns = {name: _with_nan(frame[name]) for name, dtype in frame.dtypes.items() if _has_na(dtype)}
    if not text_columns:
        return frame
    changed = frame.copy(deep=False)
    for name, column in text_columns.items():
        changed[name] = column
    return changed


def _has_na(dtype: Any) -> bool:
    text = str(dtype).removeprefix("large_")
    return text.startswith(("str", "binary")) and not isinstance(getattr(dtype, "na_value", None), float)


def _with_nan(column: Any) -> Any:
    import pandas as pd

    if not str(column.dtype).removeprefix("large_").startswith("binary"):
        with suppress(TypeError):  # pandas before 2.3 has text with NA alone
            return column.astype(pd.StringDtype(na_value=np.nan))
    return column.astype(object).where(~column.isna(), np.nan)
