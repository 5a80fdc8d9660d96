"""Columns of categories as numbers: an indicator of each category, as glum has them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import dask
import numpy as np

from dask_train.collections.partition.form import is_frame
from dask_train.collections.schema.category import CategoryColumn
from dask_train.collections.schema.frame_schema import FrameSchema, schema_of
from dask_train.collections.schema.plain import is_number
from dask_train.data.indicators import Indicators


def schema_to_learn(X: Any) -> FrameSchema | None:
    """Describe a frame of numbers, or one that has columns of categories; None of all else.

    Raises
    ------
    ValueError
        Dask does not know the categories of a column; or two columns have one name.
    """
    if is_frame(X) and (any(map(CategoryColumn.has, X.dtypes)) or _is_of_numbers(X)):
        return schema_of("X", X, None, ())
    return None


def _is_of_numbers(X: Any) -> bool:
    """Return whether all columns are numbers, and have different names."""
    return all(map(is_number, X.dtypes)) and len(set(X.columns)) == len(X.columns)


def with_indicators(X: Any, schema: FrameSchema) -> Any:
    """Return a frame whose columns of categories are indicators, in their place; lazily of a Dask frame.

    Parameters
    ----------
    X
        A frame of pandas or Dask.
    schema
        That of the frame that the model is fitted with. Its categories are found by value.

    Returns
    -------
    frame
        Of float64 indicators ``"column[category]"`` in the order of the categories, and the other columns as they are;
        the very frame where there are no categories.

    Raises
    ------
    TypeError
        A column can't hold the values of the categories.
    ValueError
        Two columns would have one name; or a value is missing or none of the categories, in the partition that has it.
    """
    import pandas as pd

    known = {column.name: column for column in schema.columns if isinstance(column, CategoryColumn)}
    if not known:
        return X
    _check_once([each for name in X.columns for each in _names(name, known.get(name))])

    if dask.is_dask_collection(X):
        empty = pd.DataFrame({name: pd.Series(dtype=dtype) for name, dtype in X.dtypes.items()})
        return X.map_partitions(with_indicators, schema, meta=with_indicators(empty, schema))
    columns: dict[Any, Any] = {}
    for name in X.columns:
        if name not in known:
            columns[name] = X[name]
            continue
        codes = known[name].conformed("X", X[name], coded=True).cat.codes.to_numpy()
        for number, indicator in enumerate(_names(name, known[name])):
            columns[indicator] = (codes == number).astype(np.float64)
    return pd.DataFrame(columns, index=X.index)


def names_with_indicators(schema: FrameSchema) -> list[Any]:
    """Return the names of the columns of :func:`with_indicators`.

    Raises
    ------
    ValueError
        Two columns would have one name.
    """
    names = [
        each
        for column in schema.columns
        for each in _names(column.name, column if isinstance(column, CategoryColumn) else None)
    ]
    _check_once(names)
    return names


def indicators_of(schema: FrameSchema) -> Indicators | None:
    """Return what makes columns of :func:`with_indicators` of rows with codes; None if there are no categories."""
    numbers = tuple(len(each.categories) if isinstance(each, CategoryColumn) else None for each in schema.columns)
    return None if set(numbers) <= {None} else Indicators(num_categories=numbers)


def _check_once(names: list[Any]) -> None:
    if twice := [name for name, number in Counter(names).items() if number > 1]:
        raise ValueError(
            f"X would have {', '.join(map(repr, twice[:10]))} more than once, with an indicator of each category. "
            "Rename such columns or categories."
        )


def _names(name: Any, column: CategoryColumn | None) -> list[Any]:
    """Name a column, or the indicators of one of categories."""
    return [name] if column is None else [f"{name}[{category}]" for category in column.categories]
