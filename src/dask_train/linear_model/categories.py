"""Columns of categories as numbers: an indicator of each category, as glum has them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import dask
import numpy as np


def categories_of(X: Any) -> dict[Any, Any]:
    """The categories of a frame's columns that have some, by name; empty of all else than a frame.

    Raises
    ------
    ValueError
        Dask does not know them.
    """
    if not hasattr(X, "columns") or X.ndim != 2:
        return {}
    names = [name for name, dtype in X.dtypes.items() if str(dtype) == "category"]
    for name in names if dask.is_dask_collection(X) else ():
        if not X[name].cat.known:
            raise ValueError(
                f"The categories of column {name!r} are not known before the frame is computed. Call "
                f"X.categorize(columns=[{name!r}]) first."
            )
    return {name: X.dtypes[name].categories for name in names}


def with_indicators(X: Any, categories: Mapping[Any, Any]) -> Any:
    """A frame whose columns of categories are indicators, in their place, lazily of Dask's.

    Parameters
    ----------
    X
        A frame of pandas or Dask.
    categories
        By column, each with the categories in the order of the indicators.

    Returns
    -------
    frame
        Of float64 indicators ``"column[category]"``, and the other columns as they are.

    Raises
    ------
    ValueError
        Two columns would have one name; or a value is missing or none of them, in the partition that has it.
    """
    import pandas as pd

    names = [each for name in X.columns for each in _names(name, categories.get(name))]
    if twice := [name for name, number in Counter(names).items() if number > 1]:
        raise ValueError(
            f"X would have {', '.join(map(repr, twice[:10]))} more than once, with an indicator of each category. "
            "Rename such columns or categories."
        )

    if dask.is_dask_collection(X):
        empty = pd.DataFrame({name: pd.Series(dtype=dtype) for name, dtype in X.dtypes.items()})
        return X.map_partitions(with_indicators, categories, meta=with_indicators(empty, categories))
    columns: dict[Any, Any] = {}
    for name in X.columns:
        if name not in categories:
            columns[name] = X[name]
            continue
        known = categories[name]
        codes = known.get_indexer(X[name])
        if (codes < 0).any():
            odd = X[name][codes < 0].iloc[0]
            raise ValueError(
                f"Column {name!r} has {odd!r}, which is none of the categories that the model was fitted with: "
                f"{', '.join(map(repr, list(known)[:10]))}. Fill it in, or leave its rows out."
            )
        for number, indicator in enumerate(_names(name, known)):
            columns[indicator] = (codes == number).astype(np.float64)
    return pd.DataFrame(columns, index=X.index)


def _names(name: Any, categories: Any) -> list[Any]:
    """What a column is called, or its indicators are."""
    return [name] if categories is None else [f"{name}[{category}]" for category in categories]
