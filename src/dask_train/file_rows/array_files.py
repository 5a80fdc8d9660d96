"""Files that hold arrays, such as HDF5: rows as Dask arrays, whose blocks are read by the tasks that need them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from dask import delayed
from dask.tokenize import tokenize
from dask.utils import parse_bytes

from dask_train.collections.pickled import carried
from dask_train.errors import DataError
from dask_train.file_rows.listing import tag_of
from dask_train.file_rows.reading import unreadable
from dask_train.file_rows.tokens import file_system_parts

# Bytes of a block: enough for a task to be worth its while.
BLOCK_BYTES = parse_bytes("32 MiB")


@dataclass(frozen=True, kw_only=True)
class ArrayFile:
    """An array in a file.

    Attributes
    ----------
    fs, path
        The fsspec file system, and the file there.
    name
        Of the array in the file; empty if there is one alone.
    dtype, shape
        Of the array, ``(n, *row_shape)``.
    step
        Rows of a block are a multiple of it, such as those of a chunk of HDF5.
    stamp
        Distinguishes this file from what lies there after it has changed.
    """

    fs: Any = field(repr=False)
    path: str
    name: str
    dtype: str
    shape: tuple[int, ...]
    step: int
    stamp: str

    def describe(self) -> str:
        """Return what errors call it."""
        return f"{self.name!r} of {self.path!r}" if self.name else repr(self.path)


# Given an array of a file, and its first and last row but one, returns the rows.
Read = Callable[[ArrayFile, int, int], np.ndarray]


def check_array(array: ArrayFile) -> ArrayFile:
    """Check that an array has rows of numbers.

    Raises
    ------
    TypeError, ValueError
        It has none.
    """
    if np.dtype(array.dtype).kind not in "biufc":
        raise TypeError(f"{array.describe()} is {np.dtype(array.dtype)}; rows are arrays of numbers or booleans.")
    if not array.shape:
        raise ValueError(f"{array.describe()} is one number; rows lie along the first axis.")
    return array


def rows_on_disk(files: Sequence[ArrayFile], read: Read) -> Any:
    """Return the rows of arrays in files as a Dask array; nothing is read.

    Parameters
    ----------
    files
        One array of each file, in order.
    read
        Reads rows of one.

    Raises
    ------
    ValueError
        They have different dtypes or rows of different shapes.
    """
    import dask.array as da

    first = files[0]
    system = file_system_parts(first.fs)
    blocks = []
    for array in files:
        if (array.dtype, array.shape[1:]) != (first.dtype, first.shape[1:]):
            raise ValueError(
                f"Rows of {array.describe()} are {np.dtype(array.dtype)} {array.shape[1:]}, and those of "
                f"{first.describe()} are {np.dtype(first.dtype)} {first.shape[1:]}. They have to be the same."
            )
        make = delayed(carried(partial(_block, read, array)), pure=False)
        token = tokenize(system, array.path, array.name, array.stamp, array.dtype, array.shape)
        bounds = _bounds(array)
        for start, stop in pairwise(bounds):
            block = make(start, stop, dask_key_name=f"rows-{token}-{start}-{stop}")
            blocks.append(da.from_delayed(block, (stop - start, *array.shape[1:]), np.dtype(array.dtype)))
    return da.concatenate(blocks)


def _bounds(array: ArrayFile) -> list[int]:
    row_bytes = max(1, np.dtype(array.dtype).itemsize * int(np.prod(array.shape[1:])))
    rows = max(1, BLOCK_BYTES // row_bytes // array.step) * array.step
    return [*range(0, array.shape[0], rows), array.shape[0]] if array.shape[0] else [0, 0]


def _block(read: Read, array: ArrayFile, start: int, stop: int) -> np.ndarray:
    try:
        stamp = stamp_of(array.fs, array.path)
        if stamp != array.stamp:
            raise DataError(
                f"File {array.path!r} is another one than when its rows were listed.",
                "It has been written since, or Dask workers see another file under this path.",
                "List it again, from a place that this process and all Dask workers share.",
            )
        rows = read(array, start, stop)
    except DataError:
        raise
    except Exception as error:
        raise unreadable(array.fs, array.path, error) from error
    if (rows.dtype.str, rows.shape) != (array.dtype, (stop - start, *array.shape[1:])):
        raise DataError(f"{array.describe()} ends before row {stop:,}.", "The file is damaged.", "Write it again.")
    return rows


def stamp_of(fs: Any, path: str) -> str:
    """Return what changes with a file: its size, and the store's own tag or its time."""
    info = fs.info(path)
    return tokenize(info.get("size"), tag_of(info))
