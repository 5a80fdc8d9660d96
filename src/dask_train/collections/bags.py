"""Bags of dicts as partitions: each a frame, whose columns are named as the first row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from dask import delayed


def bag_opened(what: str, data: Any) -> Any:
    """Return the partitions of a Dask bag, delayed, each a frame of pandas; other data as it is.

    Parameters
    ----------
    what
        How errors call it.
    data
        A bag of dicts of numbers, texts, or arrays and lists of one shape.

    Notes
    -----
    A partition without rows takes its names from the first partition, which needs at least one row.
    """
    if not is_bag(data):
        return data
    parts = data.to_delayed()
    names = delayed(_names, pure=False)(what, parts[0])
    make = delayed(_frame, pure=False)
    return [make(what, number, names, part) for number, part in enumerate(parts)]


def is_bag(data: object) -> bool:
    """Return whether data is a Dask bag; does not import ``dask.bag``."""
    return any(kind.__module__ == "dask.bag.core" and kind.__name__ == "Bag" for kind in type(data).__mro__)


def _names(what: str, part: Any) -> list[str]:
    first = next(iter(part), None)
    if not isinstance(first, Mapping):
        told = "has no row" if first is None else f"holds a {type(first).__name__}"
        raise ValueError(
            f"The first partition of {what}, a bag, {told}; rows are dicts of columns by name. Make dicts with "
            "bag.map(...), and leave no empty partition in front: bag.repartition(...)."
        )
    return list(first)


def _frame(what: str, number: int, names: Sequence[str], part: Any) -> Any:
    import pandas as pd

    rows = list(part)
    for at, row in enumerate(rows):
        if not isinstance(row, Mapping) or set(row) != set(names):
            has = ", ".join(map(repr, row)) if isinstance(row, Mapping) else f"no dict, but a {type(row).__name__}"
            raise ValueError(
                f"Row {at} of partition {number} of {what}, a bag, has {has}, and the first row has "
                f"{', '.join(map(repr, names))}. Give all rows the same names."
            )
    return pd.DataFrame({name: _column(what, number, name, [row[name] for row in rows]) for name in names})


def _column(what: str, number: int, name: str, values: list[Any]) -> Any:
    """Return values as a column of pandas: numbers as an array, all else as objects, with which NumPy does nothing."""
    are_texts = {isinstance(value, str | bytes) for value in values}
    if len(are_texts) > 1:
        raise ValueError(
            f"Values of {name!r} in partition {number} of {what}, a bag, are text and others. Give all rows one kind."
        )
    if are_texts != {True}:
        try:
            found = np.array(values)
        except ValueError as error:
            raise ValueError(
                f"Values of {name!r} in partition {number} of {what}, a bag, have several shapes. Give all rows one "
                "shape."
            ) from error
        if found.ndim == 1:
            return found
        values = list(found)
    objects = np.empty(len(values), object)
    for at, value in enumerate(values):
        objects[at] = value
    return objects
