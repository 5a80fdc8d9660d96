"""``hdf5``: data sets of HDF5 files as Dask arrays."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from dask_train.extras import check_installed
from dask_train.file_rows.array_files import ArrayFile, check_array, rows_on_disk, stamp_of
from dask_train.file_rows.listing import listed
from dask_train.file_rows.reading import unreadable
from dask_train.input_errors import raises_at_the_call


@raises_at_the_call
def hdf5(paths: Any, *names: str, storage_options: Mapping[str, Any] | None = None) -> Any:
    """Open data sets of HDF5 files as Dask arrays, whose blocks Dask workers read themselves.

    Parameters
    ----------
    paths : str, os.PathLike, or a list of them
        Path or URL with wildcards, of any one file system of fsspec. All Dask workers have to reach it. Rows of several
        files follow each other: those of a wildcard sorted by path, those of a list in its order.
    *names : str
        Names of data sets in each file, such as ``"x"`` and ``"group/y"``. Their first axis counts rows.
    storage_options : dict, optional
        Keywords for the file system, such as credentials. They are not shown. Default: none.

    Returns
    -------
    dask.array.Array, or a tuple of several
        One for each name, ``(n, *row_shape)``, of equal blocks of about 32 MiB of the largest.

    Raises
    ------
    TypeError, ValueError
        There is no such file or data set, it holds no numbers, or numbers of rows differ.
    ImportError
        h5py is not installed.

    Examples
    --------
    >>> x, y = dt.hdf5("train-*.h5", "images", "labels")
    >>> dt.fit(model, x, y, epochs=5, batch_size=64, workers=2)
    """
    check_installed("Reading HDF5", "h5py", "pip install h5py")
    if not names:
        raise ValueError("No data set is named. Pass the names of some: dt.hdf5(path, 'x', 'y').")
    files = listed(paths, storage_options)
    by_file = [[_described(files.fs, path, name) for name in names] for path in files.paths]
    for several in by_file:
        if len({array.shape[0] for array in several}) > 1:
            row_counts = ", ".join(f"{array.name!r} has {array.shape[0]:,}" for array in several)
            raise ValueError(f"Data sets of {several[0].path!r} have different numbers of rows: {row_counts}.")
    arrays = [rows_on_disk(column, _read) for column in zip(*by_file, strict=True)]
    return arrays[0] if len(arrays) == 1 else tuple(arrays)


def _described(fs: Any, path: str, name: str) -> ArrayFile:
    return _with_dataset(fs, path, name, partial(_array_of, fs, path, name))


def _array_of(fs: Any, path: str, name: str, dataset: Any) -> ArrayFile:
    return check_array(
        ArrayFile(
            fs=fs,
            path=path,
            name=name,
            dtype=dataset.dtype.str,
            shape=tuple(dataset.shape or ()),
            step=dataset.chunks[0] if dataset.chunks else 1,
            stamp=stamp_of(fs, path),
        )
    )


def _read(array: ArrayFile, start: int, stop: int) -> np.ndarray:
    rows: np.ndarray = _with_dataset(array.fs, array.path, array.name, lambda dataset: dataset[start:stop])
    return rows


def _with_dataset(fs: Any, path: str, name: str, use: Any) -> Any:
    import h5py  # type: ignore[import-untyped]

    try:
        with fs.open(path, "rb") as opened, h5py.File(opened, "r") as file:
            dataset = file.get(name)
            if isinstance(dataset, h5py.Dataset):
                return use(dataset)
            has: list[str] = []
            file.visititems(lambda each, item: has.append(each) if isinstance(item, h5py.Dataset) else None)
    except OSError as error:
        raise unreadable(fs, path, error) from error
    raise ValueError(f"File {path!r} has no data set {name!r}; it has {', '.join(map(repr, sorted(has))) or 'none'}.")
