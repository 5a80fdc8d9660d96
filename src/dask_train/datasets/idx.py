"""The idx format of MNIST: bytes of unsigned integers behind a small header.

Two zero bytes, the type (8: uint8), the number of dimensions, then each dimension as a big-endian uint32, then the
values in C order (described with the original data set by LeCun, Cortes and Burges).
"""

from __future__ import annotations

import mmap
import struct
from pathlib import Path
from typing import Any

import numpy as np

from dask_train.errors import DataError

Array = np.ndarray[Any, np.dtype[np.uint8]]

_UINT8 = 8


def idx_header(shape: tuple[int, ...]) -> bytes:
    """Return the header of a uint8 array; at most 255 dimensions, each below 2**32."""
    return struct.pack(f">HBB{len(shape)}I", 0, _UINT8, len(shape), *shape)


def write_idx(path: Path, array: Array) -> None:
    """Write a uint8 array; copies it only where it is not C-contiguous."""
    with path.open("wb") as file:
        file.write(idx_header(array.shape))
        file.write(np.ascontiguousarray(array).data)


def read_idx(path: Path, shape: tuple[int, ...]) -> Array:
    """Map an idx file of a known shape into memory.

    Parameters
    ----------
    path
        The file.
    shape
        Of the array that must be in it.

    Returns
    -------
    np.ndarray
        uint8, read-only, no copy: pages come from the file when they are touched, and processes share them. The file
        may be replaced or deleted meanwhile, but not written into.

    Raises
    ------
    DataError
        The file can't be read, has another size (torn), or other content.
    """
    header = idx_header(shape)
    expected_bytes = len(header) + int(np.prod(shape))
    change = "Delete it, and it is fetched again where the folder is dask-train's own; else put the right file there."
    try:
        with path.open("rb") as file:
            size_bytes = file.seek(0, 2)
            if size_bytes != expected_bytes:
                raise DataError(
                    f"{path} has {size_bytes:,} bytes, not {expected_bytes:,}.", "It is torn or another file.", change
                )
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise DataError(f"{path} can't be read: {error}.", change=change) from error
    if content[: len(header)] != header:
        raise DataError(
            f"{path} begins with {content[: len(header)].hex(' ')}, not {header.hex(' ')}.",
            "It is no idx file of that shape; a .gz file must be unpacked first.",
            change,
        )
    return np.frombuffer(content, np.uint8, offset=len(header)).reshape(shape)
