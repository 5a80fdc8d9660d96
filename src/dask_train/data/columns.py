"""What a data set's columns are: rows of one dtype and shape, side by side."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from dask_train.data.text import PAIR_BYTES, is_text

# The dtype of columns of text.
TEXT = "|O"


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column: rows of one dtype and shape.

    Attributes
    ----------
    dtype
        As ``numpy.dtype.str``; ``"|O"`` is text, whose rows are ``str`` in arrays and lie in shared memory as
        :mod:`dask_train.data.text` has them.
    row_shape
        The shape of one row; ``()`` where a row is a number.
    """

    dtype: str
    row_shape: tuple[int, ...]

    @property
    def is_text(self) -> bool:
        """Whether it is text of any length."""
        return self.dtype == TEXT

    @property
    def stored(self) -> Column:
        """What its rows are in shared memory: themselves, or the pairs that tell where their text lies."""
        return Column(dtype="<i8", row_shape=(*self.row_shape, 2)) if self.is_text else self

    @property
    def row_bytes(self) -> int:
        """Bytes of one row as it is stored, without those of its text."""
        if self.is_text:
            return PAIR_BYTES * math.prod(self.row_shape)
        return int(np.dtype(self.dtype).itemsize * math.prod(self.row_shape))

    def empty(self, num_rows: int) -> np.ndarray:
        """New memory for rows, not initialised."""
        return np.empty((num_rows, *self.row_shape), self.dtype)


@dataclass(frozen=True, kw_only=True)
class Schema:
    """The columns of a data set, and how a batch of them is given.

    Attributes
    ----------
    columns
        The columns.
    names
        Their names where batches are dicts, else None.
    is_tuple
        Whether a batch is a tuple, also of one; a bare array gives bare batches.
    """

    columns: tuple[Column, ...]
    names: tuple[str, ...] | None
    is_tuple: bool

    @property
    def row_bytes(self) -> int:
        """Bytes of one row over all columns."""
        return sum(column.row_bytes for column in self.columns)


def column_of(array: np.ndarray) -> Column:
    """What one partition's array says of its column.

    Raises
    ------
    TypeError
        Its elements are objects, which have no place in shared memory, or have a type that its name does not tell.
    """
    if array.dtype.hasobject and not is_text(array):
        raise TypeError(
            f"an array of {array.dtype} holds Python objects; make it numbers or text, with astype for instance"
        )
    if np.dtype(array.dtype.str) != array.dtype:  # it has fields, or is a type of another package
        raise TypeError(f"an array of {array.dtype} would lose its type; make it arrays of numbers")
    return Column(dtype=array.dtype.str, row_shape=tuple(array.shape[1:]))


def same_columns(
    parts: Iterable[tuple[int, tuple[Column, ...]]], numbers: Iterable[int] | None = None
) -> tuple[Column, ...]:
    """The columns that all partitions have.

    Parameters
    ----------
    parts
        Rows and columns of each partition. One without rows says nothing: a filter may have left it without its dtype.
    numbers
        What errors call each of them; from 0 on where it is None.

    Raises
    ------
    ValueError
        Two partitions differ.
    """
    first: tuple[int, tuple[Column, ...]] | None = None
    found: tuple[Column, ...] = ()
    for number, (num_rows, columns) in zip(itertools.count() if numbers is None else numbers, parts, strict=False):
        if first is None or (num_rows and not first[1]):
            first, found = (number, columns if num_rows else ()), columns
        elif num_rows and columns != found:
            raise ValueError(
                f"partition {first[0]} has {_words(found)} and partition {number} has {_words(columns)}; "
                "make them the same"
            )
    return found


def _words(columns: tuple[Column, ...]) -> str:
    return " and ".join(f"rows of {np.dtype(column.dtype)} {column.row_shape or 'numbers'}" for column in columns)
