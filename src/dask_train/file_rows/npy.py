"""``npy`` and ``memmap``: arrays as they lie in files, of which Dask workers read the rows that they need."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dask_train.file_rows.array_files import ArrayFile, check_array, rows_on_disk, stamp_of
from dask_train.file_rows.listing import listed
from dask_train.file_rows.reading import unreadable
from dask_train.input_errors import raises_at_the_call


@raises_at_the_call
def npy(paths: Any, *, storage_options: Mapping[str, Any] | None = None) -> Any:
    """Open ``.npy`` files as a Dask array, whose blocks Dask workers read themselves.

    Parameters
    ----------
    paths : str, os.PathLike, or a list of them
        Path or URL with wildcards, of any one file system of fsspec. All Dask workers have to reach it. Rows of several
        files follow each other: those of a wildcard sorted by path, those of a list in its order.
    storage_options : dict, optional
        Keywords for the file system, such as credentials. They are not shown. Default: none.

    Returns
    -------
    dask.array.Array
        ``(n, *row_shape)``, in blocks of about 32 MiB.

    Raises
    ------
    TypeError, ValueError
        There is no such file, it is no ``.npy`` file of numbers, or its rows do not lie one after the other.

    Examples
    --------
    >>> dt.fit(model, dt.npy("x-*.npy"), dt.npy("y-*.npy"), epochs=5, workers=2)
    """
    files = listed(paths, storage_options)
    return rows_on_disk([_described(files.fs, path) for path in files.paths], _read_npy)


@raises_at_the_call
def memmap(
    paths: Any, *, dtype: Any, row_shape: Sequence[int] | int = (), storage_options: Mapping[str, Any] | None = None
) -> Any:
    """Open files of bare numbers, such as those of ``numpy.memmap``, as a Dask array that Dask workers read themselves.

    Parameters
    ----------
    paths, storage_options
        As :func:`npy` takes them.
    dtype : numpy.dtype
        Of the numbers.
    row_shape : sequence of int, or int
        Shape of a row. A whole number ``n`` stands for ``(n,)``, as in shapes of NumPy. Default: each number is a row.

    Returns
    -------
    dask.array.Array
        ``(n, *row_shape)``, in blocks of about 32 MiB.

    Raises
    ------
    TypeError, ValueError
        There is no such file, or it does not consist of whole rows.

    Examples
    --------
    >>> tokens = dt.memmap("tokens.bin", dtype="uint16", row_shape=(1024,))
    """
    fs, names, sizes, _ = listed(paths, storage_options)
    axes = [row_shape] if isinstance(row_shape, int | np.integer) else row_shape
    kind, shape = np.dtype(dtype), tuple(int(size) for size in axes)
    row_bytes = kind.itemsize * math.prod(shape)
    if row_bytes < 1:
        raise ValueError(f"row_shape={row_shape!r} of {kind} makes rows without numbers.")
    files = []
    for path, size in zip(names, sizes, strict=True):
        if size % row_bytes:
            raise ValueError(
                f"File {path!r} has {size:,} bytes, which are no whole rows of {row_bytes:,} bytes: {kind} {shape}. "
                "Pass its own dtype and row_shape."
            )
        files.append(_array(fs, path, kind, (size // row_bytes, *shape)))
    return rows_on_disk(files, _read_bare)


def _array(fs: Any, path: str, dtype: np.dtype, shape: tuple[int, ...]) -> ArrayFile:
    stamp = stamp_of(fs, path)
    return check_array(ArrayFile(fs=fs, path=path, name="", dtype=dtype.str, shape=shape, step=1, stamp=stamp))


def _described(fs: Any, path: str) -> ArrayFile:
    try:
        with fs.open(path, "rb") as file:
            shape, is_fortran, dtype = _header(file)
    except OSError as error:
        raise unreadable(fs, path, error) from error
    except ValueError as error:
        raise ValueError(f"File {path!r} is no .npy file: {error}. Bare numbers are read by dt.memmap.") from error
    if is_fortran and len(shape) > 1:
        raise ValueError(
            f"File {path!r} holds its columns one after the other (Fortran order), so rows can't be read alone. Save "
            "numpy.ascontiguousarray(array)."
        )
    return _array(fs, path, dtype, shape)


def _header(file: Any) -> tuple[tuple[int, ...], bool, np.dtype]:
    form = np.lib.format
    version = form.read_magic(file)
    return form.read_array_header_1_0(file) if version == (1, 0) else form.read_array_header_2_0(file)


def _read_npy(array: ArrayFile, start: int, stop: int) -> np.ndarray:
    with array.fs.open(array.path, "rb") as file:
        _header(file)
        return _rows(array, file, file.tell(), start, stop)


def _read_bare(array: ArrayFile, start: int, stop: int) -> np.ndarray:
    with array.fs.open(array.path, "rb") as file:
        return _rows(array, file, 0, start, stop)


def _rows(array: ArrayFile, file: Any, begin: int, start: int, stop: int) -> np.ndarray:
    row_bytes = np.dtype(array.dtype).itemsize * math.prod(array.shape[1:])
    file.seek(begin + start * row_bytes)
    content = file.read((stop - start) * row_bytes)
    numbers = np.frombuffer(content, array.dtype, len(content) // np.dtype(array.dtype).itemsize)
    return numbers.reshape(-1, *array.shape[1:]) if len(content) == (stop - start) * row_bytes else numbers
