"""What a data set's columns are: rows of one dtype and shape, side by side."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, overload

import numpy as np

from dask_train.data.decoder import Decoder
from dask_train.data.layout import Layout
from dask_train.data.sparse_rows import SPARSE_LAYOUT, check_entries, is_sparse
from dask_train.data.structure import Places, filled, numbered
from dask_train.data.text import TEXT_LAYOUT, is_text
from dask_train.errors import DataError

# The dtype of columns of text.
TEXT = "|O"
# The dtype of columns of which only computing shows it; NumPy has none of that name.
UNKNOWN = ""


@dataclass(frozen=True, kw_only=True)
class SourceColumn:
    """The column of a frame that a column is made of.

    Attributes
    ----------
    name
        Its name in the frame.
    dtype
        As pandas has it.
    """

    name: Any
    dtype: Any

    @property
    def categories(self) -> Any:
        """Return the categories, whose codes rows hold (-1 for a missing one); None for a column without categories."""
        return getattr(self.dtype, "categories", None)

    @property
    def is_ordered(self) -> bool:
        """Return whether the categories are ordered."""
        return bool(getattr(self.dtype, "ordered", False))


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column: rows of one dtype and shape.

    Attributes
    ----------
    dtype
        As ``numpy.dtype.str``; ``"|O"`` is text, whose rows are ``str`` in arrays and lie in shared memory as
        :mod:`dask_train.data.text` has them. Empty as long as only computing shows.
    row_shape
        The shape of one row; ``()`` where a row is a number.
    origins
        The columns of a frame that it is made of: one, or those that lie side by side in a row. Empty for arrays.
    decoder
        What makes rows of batches of those that are stored. Default: batches have them as they are stored.
    is_sparse
        Whether rows are stored as those of a sparse matrix, of which batches have all numbers.
    """

    dtype: str
    row_shape: tuple[int, ...]
    origins: tuple[SourceColumn, ...] = ()
    decoder: Decoder | None = None
    is_sparse: bool = False

    @property
    def names(self) -> tuple[str, ...] | None:
        """Return the names of the frame's columns in a row; None for arrays."""
        return tuple(str(each.name) for each in self.origins) or None

    @property
    def categories(self) -> tuple[Any, ...] | None:
        """Return the categories of each of the frame's columns, None for numbers; None if all are numbers."""
        categories = tuple(each.categories for each in self.origins)
        return categories if any(each is not None for each in categories) else None

    @property
    def is_text(self) -> bool:
        """Return whether rows are text of any length."""
        return self.dtype == TEXT

    @property
    def layout(self) -> Layout | None:
        """Return how rows lie in shared memory that take different numbers of bytes; None where all take the same."""
        if self.is_text:
            return TEXT_LAYOUT
        return SPARSE_LAYOUT if self.is_sparse else None

    @property
    def stored(self) -> Column:
        """Return the column as shared memory has it: itself, or heads that say where a row lies."""
        return self if self.layout is None else Column(dtype="<i8", row_shape=self.layout.head_shape(self.row_shape))

    @property
    def dense(self) -> Column:
        """Return the column with all numbers of a row: itself, if it is not sparse."""
        return replace(self, is_sparse=False) if self.is_sparse else self

    @property
    def in_batch(self) -> Column:
        """Return the column as batches have it: dense, or what its rows are decoded to."""
        if self.decoder is None:
            return self.dense
        return Column(dtype=self.decoder.dtype, row_shape=self.decoder.row_shape)

    @property
    def row_bytes(self) -> int:
        """Return the bytes of one row as it is stored, of text and of sparse rows those of the head."""
        stored = self.stored
        return int(np.dtype(stored.dtype).itemsize * math.prod(stored.row_shape))

    def empty(self, num_rows: int) -> np.ndarray:
        """Return new memory for rows, not initialised; for sparse ones, which then travel one by one, objects."""
        return np.empty(num_rows, object) if self.is_sparse else np.empty((num_rows, *self.row_shape), self.dtype)


@dataclass(frozen=True, kw_only=True)
class Columns(Sequence[Column]):
    """Which column of a data set is what, and how a batch of them is given; a sequence of its columns.

    Attributes
    ----------
    columns
        The columns, in order; empty as long as only computing shows how many there are, and what they are.
    names
        Their names where batches are dicts, else None.
    is_tuple
        Whether a batch is a tuple, also of one; a bare array gives bare batches.
    features, labels, weights
        What models take for inputs, targets and sample weights: structures with the number of a column in place of
        each array. None if there are none, or a data set does not say what its columns are for.
    groups, margins
        The number of the column of groups, of rows that belong together, such as those of a query; and of the scores
        that boosting begins with. None if there is none.
    """

    columns: tuple[Column, ...] = ()
    names: tuple[str, ...] | None = None
    is_tuple: bool = True
    features: Places = None
    labels: Places = None
    weights: Places = None
    groups: int | None = None
    margins: int | None = None

    @classmethod
    def of(cls, features: Any, labels: Any = None, weights: Any = None) -> tuple[Self, tuple[Any, ...]]:
        """Return the places of arrays, which lie in structures; and the arrays, in order."""
        flat: list[Any] = []
        places = [numbered(value, flat) for value in (features, labels, weights)]
        columns = tuple(_unknown() for _ in flat)
        return cls(columns=columns, features=places[0], labels=places[1], weights=places[2]), tuple(flat)

    @classmethod
    def of_batch(cls, num_columns: int, rows: Sequence[Column] | None = None) -> Self:
        """Return what a tuple of one to three columns means to Keras: features, labels, weights."""
        columns, _ = cls.of(*range(num_columns))
        return columns if rows is None else columns.with_rows(rows)

    def __len__(self) -> int:
        return len(self.columns)

    def __bool__(self) -> bool:
        """Return True: what columns are for may be known before what they are."""
        return True

    @overload
    def __getitem__(self, number: int) -> Column: ...
    @overload
    def __getitem__(self, number: slice) -> tuple[Column, ...]: ...
    def __getitem__(self, number: int | slice) -> Column | tuple[Column, ...]:
        return self.columns[number]

    @property
    def are_known(self) -> bool:
        """Return whether the dtypes and shapes of all columns are known."""
        return bool(self.columns) and all(column.dtype for column in self.columns)

    @property
    def are_decoded(self) -> bool:
        """Return whether batches have other rows than those that are stored, in some column."""
        return any(column.decoder is not None for column in self.columns)

    @property
    def matrix(self) -> Column:
        """Return the column of features, where there is only one."""
        return self.columns[self.features]

    @property
    def row_bytes(self) -> int:
        """Return the bytes of one row over all columns."""
        return sum(column.row_bytes for column in self.columns)

    def with_rows(self, columns: Sequence[Column]) -> Self:
        """Return the same columns, with what a partition has shown of its rows."""
        if len(self.columns) != len(columns):
            return replace(self, columns=tuple(columns))
        known = zip(self.columns, columns, strict=True)
        kept = (replace(one, origins=own.origins, decoder=own.decoder or one.decoder) for own, one in known)
        return replace(self, columns=tuple(kept))

    @property
    def in_batch(self) -> Self:
        """Return the same columns as batches have them."""
        return replace(self, columns=tuple(column.in_batch for column in self.columns))

    def with_origins(self, origins: Mapping[int, tuple[SourceColumn, ...]]) -> Self:
        """Return the same columns, of which some are known to be made of columns of frames."""
        several = (replace(one, origins=origins.get(number, one.origins)) for number, one in enumerate(self.columns))
        return replace(self, columns=tuple(several))

    def places(self) -> dict[str, Places]:
        """Return where features, labels and weights lie, by what verbs and checkpoints call them."""
        return {"x": self.features, "y": self.labels, "sample_weight": self.weights}

    def pack(self, batch: Sequence[Any]) -> tuple[Any, Any, Any]:
        """Return features, labels and weights of the columns of a batch."""
        features, labels, weights = (filled(places, batch.__getitem__) for places in self.places().values())
        return features, labels, weights


def _unknown() -> Column:
    return Column(dtype=UNKNOWN, row_shape=())


def column_of(array: Any) -> Column:
    """Return what one partition's array, or sparse matrix, says of its column.

    Raises
    ------
    TypeError
        Its elements are objects, which shared memory can't hold, or have a type that its name does not tell.
    """
    if is_sparse(array):
        check_entries(array.dtype)
        return Column(dtype=array.dtype.str, row_shape=(int(array.shape[1]),), is_sparse=True)
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
    """Return the columns that all partitions have.

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
    common: tuple[Column, ...] = ()
    for number, (num_rows, columns) in zip(itertools.count() if numbers is None else numbers, parts, strict=False):
        if first is None or (num_rows and not first[1]):
            first, common = (number, columns if num_rows else ()), columns
        elif num_rows and columns != common:
            raise ValueError(
                f"partition {first[0]} has {_words(common)} and partition {number} has {_words(columns)}; "
                "make them the same"
            )
    return common


def check_same_partition(
    what: str, number: int, before: tuple[int, Sequence[Column]], now: tuple[int, Sequence[Column]]
) -> None:
    """Check that a partition which Dask may have computed again has the rows and columns that are known of it.

    Parameters
    ----------
    what
        The data set, as errors call it: ``"data['worker']"``.
    number
        The number of the partition.
    before, now
        Its rows and columns, as they are known, and as they are. Columns that are not known yet are none.

    Raises
    ------
    DataError
        They differ.
    """
    (num_before, columns_before), (num_now, columns_now) = before, now
    if num_before != num_now:
        differs = f"had {num_before:,} rows and now has {num_now:,}"
    elif num_now and columns_before and columns_before != columns_now and plain(columns_before) != plain(columns_now):
        differs = f"had {_words(columns_before)} and now has {_words(columns_now)}"
    else:
        return
    raise DataError(
        f"Partition {number} of {what} {differs}.",
        "What Dask computes it from has changed meanwhile, draws random numbers without a seed, or declares other "
        "chunks than it has.",
        "Let it give the same rows each time: write them to files, and read those; x.compute_chunk_sizes() mends the "
        "chunks of a Dask array. Then persist or publish it anew.",
    )


def plain(columns: Iterable[Column]) -> tuple[Column, ...]:
    """Return what partitions show of columns: not what they are made of, nor what decodes them."""
    return tuple(replace(column, dtype=np.dtype(column.dtype).str, origins=(), decoder=None) for column in columns)


def _words(columns: Sequence[Column]) -> str:
    return " and ".join(
        f"{'sparse ' if column.is_sparse else ''}rows of {np.dtype(column.dtype)} {column.row_shape or 'numbers'}"
        for column in columns
    )
