"""What travels in prediction: a model in parts, and what is asked of it; plain values that import no framework."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dask_train.data.columns import Column
from dask_train.fit_roles.layout import Layout, Places

# An array begins at a multiple of this in shared memory: less would abort TensorFlow's from_dlpack.
ALIGNMENT_BYTES = 64


@dataclass(frozen=True, kw_only=True, eq=False)
class ModelParts:
    """A model that is opened in a model process; a Dask worker keeps and passes on the parts as they are.

    Attributes
    ----------
    kind
        ``"keras"``, ``"torch"``, or ``"file"`` for one that each process reads itself.
    name
        How errors call it.
    token
        Tells it from every model with other contents.
    header
        What is needed besides the arrays; pickled by the model's own opener.
    arrays
        Weights and states, C-contiguous, of dtypes of NumPy.
    opened_bytes
        What its variables take.
    environment
        Variables that its process gets besides those of the Dask worker.
    """

    kind: str
    name: str
    token: str
    header: bytes = field(repr=False)
    arrays: Sequence[np.ndarray] = field(repr=False)
    opened_bytes: int
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """Bytes of header and arrays."""
        return len(self.header) + sum(array.nbytes for array in self.arrays)

    def __sizeof__(self) -> int:
        return object.__sizeof__(self) + self.nbytes

    def __dask_tokenize__(self) -> tuple[str, str]:
        return self.kind, self.token


@dataclass(frozen=True, kw_only=True)
class Call:
    """What is asked of a model, the same for all partitions.

    Attributes
    ----------
    verb
        ``"predict"`` or ``"evaluate"``.
    layout
        Where inputs, targets and weights lie among the columns.
    columns
        What goes in: dtypes as the model takes them, and the shapes of rows.
    outputs
        What comes out of ``"predict"``, in the order of :attr:`places`.
    places
        The structure of the model's outputs, numbers for arrays.
    batch_size
        Rows of one batch.
    """

    verb: str
    layout: Layout
    columns: tuple[Column, ...]
    outputs: tuple[Column, ...] = ()
    places: Places = 0
    batch_size: int

    @classmethod
    def of_rows(cls, batch_size: int) -> Call:
        """A prediction of one array or frame, of which nothing else is known."""
        return cls(verb="predict", layout=Layout.of_batch(1), columns=(), batch_size=batch_size)


def offsets(columns: Sequence[Column], num_rows: int) -> tuple[list[int], int]:
    """Where each column of so many rows begins in shared memory, and bytes of all."""
    found, end = [], 0
    for column in columns:
        found.append(end)
        end += -(-column.row_bytes * num_rows // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
    return found, end


def views(memory: Any, columns: Sequence[Column], num_rows: int) -> list[np.ndarray]:
    """The columns in shared memory, ``(num_rows, *row_shape)`` each; no copy."""
    starts, _ = offsets(columns, num_rows)
    return [
        np.ndarray((num_rows, *column.row_shape), column.dtype, memory, start)
        for column, start in zip(columns, starts, strict=True)
    ]


def fitting(what: str, arrays: Sequence[Any], columns: Sequence[Column]) -> list[np.ndarray]:
    """The arrays, once it is seen that rows are as planned and as many in all.

    Raises
    ------
    ValueError
        They are not.
    """
    counts = {len(array) for array in arrays}
    if len(counts) != 1:
        raise ValueError(f"The arrays of {what} have {', '.join(str(len(array)) for array in arrays)} rows.")
    for number, (array, column) in enumerate(zip(arrays, columns, strict=True)):
        if len(array) and tuple(array.shape[1:]) != column.row_shape:
            raise ValueError(
                f"Array {number} of {what} has rows of shape {tuple(array.shape[1:])}, and {column.row_shape} was "
                "told before it was computed. Give the collection the shape that its blocks have."
            )
        if array.dtype != column.dtype and not np.can_cast(array.dtype, column.dtype, "same_kind"):
            raise ValueError(
                f"Array {number} of {what} is {array.dtype}, and {np.dtype(column.dtype)} was told before it was "
                "computed. Give the collection the dtype that its blocks have, with astype."
            )
    return [array if len(array) else column.empty(0) for array, column in zip(arrays, columns, strict=True)]
