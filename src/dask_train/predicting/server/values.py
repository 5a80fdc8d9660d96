"""What travels in prediction: a model in parts, and what is asked of it; plain values that import no framework."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dask_train.collections.partition.text import text_rows
from dask_train.data.alignment import rounded
from dask_train.data.columns import Column, Columns
from dask_train.data.structure import Places
from dask_train.data.text import packed
from dask_train.settings.process import Settings


@dataclass(frozen=True, kw_only=True, eq=False)
class ModelParts:
    """A model that is opened in a model process; a Dask worker keeps and passes on the parts as they are.

    Attributes
    ----------
    kind
        ``"keras"``; ``"torch"``, or ``"torch-script"`` and ``"torch-exported"`` of what torch has compiled; or
        ``"file"`` for one that each process reads itself.
    name
        How errors call it.
    token
        Distinguishes it from every model with other contents.
    header
        What is needed besides the arrays; pickled by the model's own opener.
    arrays
        Weights and states, C-contiguous, of dtypes of NumPy.
    opened_bytes
        What its variables take.
    environment
        Variables that its process gets besides those of the Dask worker.
    settings
        Of libraries, that its process takes over; the token tells them, too.
    """

    kind: str
    name: str
    token: str
    header: bytes = field(repr=False)
    arrays: Sequence[np.ndarray] = field(repr=False)
    opened_bytes: int
    environment: Mapping[str, str] = field(default_factory=dict)
    settings: Settings = field(default_factory=Settings)

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
        ``"predict"``; ``"evaluate"``, what metrics count over the rows; or ``"logs"``, what they say after them.
    columns
        What goes in: dtypes as the model takes them, the shapes of rows, and which are inputs, targets and weights.
    outputs
        What comes out of ``"predict"``, in the order of :attr:`places`.
    places
        The structure of the model's outputs, numbers for arrays.
    batch_size
        Rows of one batch.
    block_seed
        Of the block: what a model draws at random for its rows depends on it, and neither on the process that does it
        nor on what that did before. None in the user's own process.
    before
        What metrics have counted before, for ``"logs"``; None for nothing.
    """

    verb: str
    columns: Columns
    outputs: tuple[Column, ...] = ()
    places: Places = 0
    batch_size: int
    block_seed: int | None = None
    before: list[np.ndarray] | None = None

    @classmethod
    def of_rows(cls, batch_size: int) -> Call:
        """Return a prediction of one array or frame, of which nothing else is known."""
        return cls(verb="predict", columns=Columns(features=0), batch_size=batch_size)


def packed_texts(where: str, columns: Sequence[Column], arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return the arrays, those of columns of text as images, as :func:`dask_train.data.text.packed` makes them.

    Raises
    ------
    TypeError
        A value is no text; the error calls the block ``where``.
    """
    return [
        packed(text_rows(f"of array {number} of {where}", array)) if column.is_text else array
        for number, (column, array) in enumerate(zip(columns, arrays, strict=True))
    ]


def size_bytes(columns: Sequence[Column], num_rows: int, text_sizes: Sequence[int] = ()) -> int:
    """Bytes of that many rows in shared memory; see :func:`views`."""
    return _offsets(columns, num_rows, text_sizes)[-1]


def views(memory: Any, columns: Sequence[Column], num_rows: int, text_sizes: Sequence[int] = ()) -> list[np.ndarray]:
    """Return the columns in shared memory, without a copy: ``(num_rows, *row_shape)``; of text uint8 ``(size,)``.

    Parameters
    ----------
    text_sizes
        Bytes of the images of the columns of text, in order.
    """
    starts, sizes = _offsets(columns, num_rows, text_sizes), iter(text_sizes)
    return [
        np.ndarray(next(sizes), np.uint8, memory, start)
        if column.is_text
        else np.ndarray((num_rows, *column.row_shape), column.dtype, memory, start)
        for column, start in zip(columns, starts, strict=False)
    ]


def _offsets(columns: Sequence[Column], num_rows: int, text_sizes: Sequence[int]) -> list[int]:
    """Return where each column begins, and where the last ends."""
    offsets, sizes = [0], iter(text_sizes)
    for column in columns:
        size = next(sizes) if column.is_text else column.row_bytes * num_rows
        offsets.append(offsets[-1] + rounded(size))
    return offsets


def fitting(what: str, arrays: Sequence[Any], columns: Sequence[Column]) -> list[np.ndarray]:
    """Return the arrays, once it is seen that rows are as planned and as many in all.

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
        as_floats = np.dtype(column.dtype).kind == "f" and array.dtype.kind in "biuf"  # which the model computes in
        if not as_floats and not holds(column.dtype, array.dtype):
            raise ValueError(
                f"Array {number} of {what} is {array.dtype}, and {np.dtype(column.dtype)} was told before it was "
                "computed. Give the collection the dtype that its blocks have, with astype."
            )
    return [array if len(array) else column.empty(0) for array, column in zip(arrays, columns, strict=True)]


def holds(dtype: Any, other: Any) -> bool:
    """Return whether each value of another dtype has its place, unchanged, in a dtype."""
    to, of = np.dtype(dtype), np.dtype(other)
    if to == of or to.kind == "O":
        return True
    if of.kind in "iu" and of.itemsize == 8 and to.kind in "fc":
        return False  # NumPy calls it safe, and floats have 53 bits
    if (to.kind in "US") != (of.kind in "US"):
        return False  # NumPy would write numbers as text
    return bool(np.can_cast(of, to, "safe"))


def outputs_of(name: str, call: Call, outputs: Any, num_rows: int) -> list[Any]:
    """Return what a model made of rows, in the order of the call's outputs.

    Parameters
    ----------
    name
        How errors call the model.
    outputs
        An array, or a structure of them, of any framework.

    Raises
    ------
    ValueError
        It is put together in another way than :attr:`Call.places`, or an output has rows of another shape or number.
    """
    flat: list[Any] = []
    if not _flatten(call.places, outputs, flat):
        raise ValueError(
            f"{name} made {_form(outputs)} of {num_rows} rows, and {_form(call.places)} of sample rows. Make the same "
            "of any rows."
        )
    for output, column in zip(flat, call.outputs, strict=True):
        if tuple(np.shape(output)) != (num_rows, *column.row_shape):
            raise ValueError(
                f"{name} made an array of shape {tuple(np.shape(output))} of {num_rows} rows, and "
                f"{(num_rows, *column.row_shape)} was expected from what it made of sample rows, or from meta. Make "
                "one row of each, of the same shape for any rows."
            )
    return flat


def plain(output: Any) -> np.ndarray:
    """Return an output of a function as an array of a dtype of NumPy itself: bfloat16 and the like come as float32.

    Those of JAX have ``dtype.str`` of raw bytes, which Dask's arrays, files and shared memory would take them for.
    """
    array = np.asarray(output)
    return array.astype(np.float32) if array.dtype.kind == "V" and "float" in array.dtype.name else array


def in_dtype(name: str, array: np.ndarray, column: Column) -> np.ndarray:
    """Return an output in the dtype that was announced; a copy only where that is another, which has the same values.

    Raises
    ------
    ValueError
        Values would be lost: text cut, numbers rounded or wrapped around.
    """
    if not holds(column.dtype, array.dtype):
        raise ValueError(
            f"{name} made {array.dtype}, and {np.dtype(column.dtype)} was told before anything was computed, from what "
            f"it made of sample rows, or from meta. Make {np.dtype(column.dtype)} of any rows, with astype; or, of a "
            f"function, pass meta=np.empty((0, ...), {array.dtype.str!r}), or a dtype that has room for all blocks."
        )
    return array.astype(column.dtype, copy=False)


def _flatten(places: Places, structure: Any, flat: list[Any]) -> bool:
    """Take a structure apart as another is put together; whether it is put together so."""
    if places is None or structure is None:
        return places is structure
    if isinstance(places, Mapping):
        same = isinstance(structure, Mapping) and set(structure) == set(places)
        return same and all(_flatten(below, structure[name], flat) for name, below in places.items())
    if isinstance(places, tuple | list):
        same = isinstance(structure, tuple | list) and len(structure) == len(places)
        return same and all(_flatten(below, one, flat) for below, one in zip(places, structure, strict=True))
    flat.append(structure)
    return not isinstance(structure, tuple | list | Mapping)


def _form(structure: Any) -> str:
    if isinstance(structure, Mapping):
        return f"a dict of {', '.join(map(repr, structure))}"
    if isinstance(structure, tuple | list):
        return f"a {type(structure).__name__} of {len(structure)}"
    return "nothing" if structure is None else "one array"
