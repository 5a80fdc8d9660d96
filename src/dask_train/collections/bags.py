"""Bags of dicts as partitions: each a frame, whose columns are named as the first row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import dask
import numpy as np
from dask import delayed
from dask.tokenize import tokenize

from dask_train.collections.delayed import for_all
from dask_train.collections.frames import FrameSource, arrays_of_parts
from dask_train.collections.partition.kinds import is_row_array
from dask_train.collections.partition.part import part
from dask_train.collections.partition.plan import Read, columns_of
from dask_train.collections.partition.reading import read
from dask_train.collections.pickled import carried
from dask_train.data.columns import Column, column_of


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
    names = for_all(_names, what, parts[0])
    make = delayed(_frame, pure=False)
    return [make(what, number, names, part) for number, part in enumerate(parts)]


def first_row(what: str, bag: Any) -> Any:
    """Return the first row of a bag of dicts as a frame of pandas of the first partition's dtypes, delayed.

    Raises
    ------
    ValueError
        When it is computed: there is no row, or it is no dict.
    """
    return delayed(carried(_first, what), pure=False)(bag.to_delayed()[0])


@dataclass(frozen=True, kw_only=True, eq=False)
class BagRows:
    """A bag of dicts, of which the first row is known.

    Attributes
    ----------
    frame
        A Dask frame, a partition of it for each one of the bag. Columns of arrays are objects.
    first
        The first row, a frame of pandas.
    """

    frame: Any = field(repr=False)
    first: Any = field(repr=False)

    @classmethod
    def of(cls, what: str, bag: Any, first: Any) -> BagRows:
        """Return a bag with its first row; nothing is computed.

        Parameters
        ----------
        what
            How errors call it.
        bag
            As :func:`bag_opened` takes it.
        first
            What :func:`first_row` has given.
        """
        import dask.dataframe as dd

        texts = [name for name in first if first[name].dtype == object and isinstance(first[name].iloc[0], str)]
        meta = first[:0].astype(dict.fromkeys(texts, "string"))
        make = delayed(carried(_alike, what, meta), pure=False)
        # Of the same bag the same keys: dt.predict_to knows the rows again by them.
        name = f"bag-rows-{tokenize(what, bag.name, meta)}"
        parts = [make(n, each, dask_key_name=f"{name}-{n}") for n, each in enumerate(bag.to_delayed())]
        with dask.config.set({"dataframe.convert-string": False}):  # else Dask makes text of arrays
            frame = dd.from_delayed(parts, meta=meta)
        return cls(frame=frame, first=first)

    def holds_arrays(self, names: Sequence[Any]) -> bool:
        """Return whether one of these columns holds arrays rather than numbers or text."""
        values = (self.first[name].iloc[0] for name in names if name in self.first.columns)
        return any(np.ndim(value) > 0 for value in values)

    def arrays(self, source: FrameSource) -> list[Any]:
        """Return columns as Dask arrays of unknown length, a block for each partition; nothing is computed.

        Parameters
        ----------
        source
            Of :attr:`frame`, or of what its columns have been made.
        """
        plan, (frame,) = source.plan, source.frames
        like = [_like(plan["what"], one, self.first) for one in plan["reads"]]
        make = delayed(carried(_arrays, plan, [(column.dtype, column.row_shape) for column in like]), pure=False)
        name = f"bag-arrays-{tokenize(frame, plan)}"
        parts = [make(n, each, dask_key_name=f"{name}-{n}") for n, each in enumerate(frame.to_delayed())]
        return arrays_of_parts(parts, like)


def _like(what: str, one: Read, first: Any) -> Column:
    """Return what a partition becomes."""
    if is_row_array((one["columns"] or [])[0]):
        return column_of(read(f"the first row of {what}", one, [first]))
    ((dtype, row_shape),) = columns_of({"reads": [one]}) or ()
    return Column(dtype=dtype, row_shape=row_shape)


def _arrays(plan: Mapping[str, Any], like: Sequence[tuple[str, tuple[int, ...]]], number: int, frame: Any) -> Any:
    arrays = part(list, plan, number, frame)
    if not len(frame):
        return [np.empty((0, *row_shape), dtype) for dtype, row_shape in like]
    for array, one, (dtype, row_shape) in zip(arrays, plan["reads"], like, strict=True):
        if (array.dtype.str, array.shape[1:]) != (dtype, row_shape):
            raise ValueError(
                f"Rows of {one['columns'][0]['name']!r} in partition {number} of {plan['what']}, a bag, are "
                f"{array.dtype} {array.shape[1:]}, and the first row is {np.dtype(dtype)} {row_shape}. Give all rows "
                "one dtype and shape."
            )
    return arrays


def is_bag(data: object) -> bool:
    """Return whether data is a Dask bag; does not import ``dask.bag``."""
    return any(kind.__module__ == "dask.bag.core" and kind.__name__ == "Bag" for kind in type(data).__mro__)


def _first(what: str, rows: Any) -> Any:
    rows = list(rows)  # of numbers the first one may be whole, and the others floats
    return _frame(what, 0, _names(what, rows), rows)[:1]


def _names(what: str, rows: Any) -> list[str]:
    first = next(iter(rows), None)
    if not isinstance(first, Mapping):
        problem = "has no row" if first is None else f"holds a {type(first).__name__}"
        raise ValueError(
            f"The first partition of {what}, a bag, {problem}; rows are dicts of columns by name. Make dicts with "
            "bag.map(...), and leave no empty partition in front: bag.repartition(...)."
        )
    return list(first)


def _frame(what: str, number: int, names: Sequence[str], rows: Any) -> Any:
    import pandas as pd

    rows = list(rows)
    for at, row in enumerate(rows):
        if not isinstance(row, Mapping) or set(row) != set(names):
            has = ", ".join(map(repr, row)) if isinstance(row, Mapping) else f"no dict, but a {type(row).__name__}"
            raise ValueError(
                f"Row {at} of partition {number} of {what}, a bag, has {has}, and the first row has "
                f"{', '.join(map(repr, names))}. Give all rows the same names."
            )
    return pd.DataFrame({name: _column(what, number, name, [row[name] for row in rows]) for name in names})


def _alike(what: str, meta: Any, number: int, rows: Any) -> Any:
    """Return a partition as a frame of the first one's dtypes, in which no value becomes another."""
    frame = _frame(what, number, list(meta.columns), rows)
    for name, dtype in meta.dtypes.items():
        column = frame[name]
        if column.dtype == dtype:
            continue
        if len(column) and not (_holds(dtype, column.dtype, column) or _is_text(dtype, column)):
            raise ValueError(
                f"Values of {name!r} in partition {number} of {what}, a bag, are {column.dtype}, and those of the "
                f"first one are {dtype}. Give all rows one kind, such as floats."
            )
        frame[name] = column.astype(dtype)
    return frame


def _holds(dtype: Any, of: Any, column: Any) -> bool:
    """Return whether numbers of a column keep their values in another dtype."""
    if not (isinstance(of, np.dtype) and isinstance(dtype, np.dtype)) or dtype.hasobject:
        return False
    rounds = dtype.kind in "fc" and of.kind in "iu" and of.itemsize == 8  # NumPy calls it safe
    return np.can_cast(of, dtype, "safe") and not (rounds and (column.abs() > 2.0**53).any())


def _is_text(dtype: Any, column: Any) -> bool:
    return dtype == "string" and column.dtype == object and isinstance(column.iloc[0], str)


def _is_rounded(value: Any) -> bool:
    """Return whether a value is, or has, a whole number that floats don't hold exactly."""
    if isinstance(value, np.ndarray):
        return value.dtype.kind in "iu" and any(map(_is_rounded, value.ravel().tolist()))
    if isinstance(value, list | tuple):
        return any(map(_is_rounded, value))
    return isinstance(value, int | np.integer) and int(float(value)) != int(value)


def _are_rounded(values: Sequence[Any], array: np.ndarray) -> bool:
    """Return whether the array of values, one for each row, has floats in place of whole numbers that they round."""
    if array.dtype.kind not in "fc" or array.dtype == np.float16:  # which has none of that size
        return False
    is_large = np.isfinite(array) & (np.abs(array) >= 2.0**53)
    if not is_large.any():
        return False
    rows = np.flatnonzero(is_large.reshape(len(values), -1).any(axis=1))
    return any(_is_rounded(values[int(row)]) for row in rows)


def _column(what: str, number: int, name: str, values: list[Any]) -> Any:
    """Return values as a column of pandas: numbers as an array, all else as objects, with which NumPy does nothing."""
    are_texts = {isinstance(value, str | bytes) for value in values}
    if len(are_texts) > 1:
        raise ValueError(
            f"Values of {name!r} in partition {number} of {what}, a bag, are text and others. Give all rows one kind."
        )
    if are_texts != {True}:
        try:
            array = np.array(values)
        except ValueError as error:
            raise ValueError(
                f"Values of {name!r} in partition {number} of {what}, a bag, have several shapes. Give all rows one "
                "shape."
            ) from error
        if _are_rounded(values, array):
            raise ValueError(
                f"Values of {name!r} in partition {number} of {what}, a bag, are whole numbers beside others, and "
                "floats would round some of them, beyond 53 bits. Give all rows whole numbers of one dtype, such as "
                "numpy.int64, and none that is missing; or make floats of all, which rounds them: float(...)."
            )
        if array.ndim == 1:
            return array
        values = list(array)
    objects = np.empty(len(values), object)
    for at, value in enumerate(values):
        objects[at] = value
    return objects
