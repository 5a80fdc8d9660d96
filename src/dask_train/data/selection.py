"""Which columns of a data set are wanted, and how they are given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dask_train.data.columns import Columns

# What the columns of an array, or of a tuple of them, are called; further ones go by their numbers.
TUPLE_NAMES = ("x", "y")


@dataclass(frozen=True, kw_only=True)
class Field:
    """One array of what is wanted.

    Attributes
    ----------
    columns
        Numbers of the columns that it is made of: one, or those of a matrix.
    is_matrix
        Whether columns of numbers stand side by side, ``(n, len(columns))``.
    dtype
        Of the array, as ``numpy.dtype.str``.
    """

    columns: tuple[int, ...]
    is_matrix: bool
    dtype: str


@dataclass(frozen=True, kw_only=True)
class Selection:
    """What is wanted of a data set.

    Attributes
    ----------
    fields
        The arrays, that of the label last.
    names
        The features' names where they are given as a dict.
    is_tuple
        Whether the features are given as a tuple.
    has_label
        Whether a pair of features and label is given.
    """

    fields: tuple[Field, ...]
    names: tuple[str, ...] | None
    is_tuple: bool
    has_label: bool

    def shaped(self, values: Sequence[Any]) -> Any:
        """Return one value a field, put together as it was asked for."""
        values = tuple(values)
        features = values[:-1] if self.has_label else values
        inputs: Any = features if self.is_tuple else features[0]
        if self.names is not None:
            inputs = dict(zip(self.names, features, strict=True))
        return (inputs, values[-1]) if self.has_label else inputs


def column_names(schema: Columns) -> tuple[str, ...]:
    """Return what columns are picked by: the names of a dict; else ``x``, ``y``, and numbers from 2."""
    if schema.names is not None:
        return schema.names
    return tuple(TUPLE_NAMES[number] if number < 2 else str(number) for number in range(len(schema.columns)))


def select(schema: Columns, features: str | Sequence[str] | None, label: str | None) -> Selection:
    """Return what ``features=`` and ``label=`` ask for.

    Parameters
    ----------
    schema
        The columns that there are.
    features
        A name gives that column, a list one matrix of columns of numbers, None all columns but the label's, as the
        data set is.
    label
        Makes pairs of features and this column.

    Raises
    ------
    ValueError
        There is no such column, or they make no matrix.
    """
    names = column_names(schema)
    if label is not None and not isinstance(label, str):
        raise ValueError(f"label is {label!r}; it is the name of one column, out of {', '.join(names)}.")
    labels = () if label is None else (_field(schema, names, label),)
    if features is None:
        left = [name for name in names if name != label]
        if not left:
            raise ValueError(f"label={label!r} is the only column, so no features are left. Leave label out.")
        fields = tuple(_field(schema, names, name) for name in left)
        return Selection(
            fields=fields + labels,
            names=None if schema.names is None else tuple(left),
            is_tuple=schema.is_tuple and (label is None or len(left) > 1),
            has_label=label is not None,
        )
    field = _field(schema, names, features) if isinstance(features, str) else _matrix(schema, names, features)
    return Selection(fields=(field, *labels), names=None, is_tuple=False, has_label=label is not None)


def _number(names: Sequence[str], name: str) -> int:
    if name not in names:
        raise ValueError(f"There is no column {name!r}; there are {', '.join(names)}.")
    return names.index(name)


def _field(schema: Columns, names: Sequence[str], name: str) -> Field:
    number = _number(names, name)
    return Field(columns=(number,), is_matrix=False, dtype=schema.columns[number].dtype)


def _matrix(schema: Columns, names: Sequence[str], wanted: Sequence[str]) -> Field:
    numbers = tuple(_number(names, name) for name in wanted)
    if not numbers:
        raise ValueError("features is empty; name columns, or leave it out for all.")
    columns = [schema.columns[number] for number in numbers]
    for name, column in zip(wanted, columns, strict=True):
        if column.row_shape or np.dtype(column.dtype).kind not in "biufc":
            raise ValueError(
                f"features={list(wanted)!r} is to be a matrix of numbers, and a row of column {name!r} is "
                f"{np.dtype(column.dtype)} {column.row_shape or ''}".rstrip()
                + f". Ask for it alone: features={name!r}."
            )
    dtype = np.result_type(*(np.dtype(column.dtype) for column in columns))
    return Field(columns=numbers, is_matrix=True, dtype=dtype.str)
