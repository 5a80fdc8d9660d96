"""What tasks of Dask do with the files of a partition: read them, and decode them where that is asked for."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

from dask_train.data.file_decoder import FILE_SHAPE, FileDecoder
from dask_train.errors import DataError
from dask_train.stores import is_url, trouble_of


def unpacked_paths(packed: bytes) -> list[str]:
    """Return the paths that :func:`dask_train.file_rows.source.packed_paths` has packed."""
    return zlib.decompress(packed).decode("utf-8", "surrogatepass").split("\0")


def shown(path: str) -> str:
    """Return a path as rows hold it for errors to name: in names that are no UTF-8, bytes that are none are escaped."""
    return path.encode("utf-8", "backslashreplace").decode()


def contents_of(fs: Any, paths: list[str]) -> list[bytes]:
    """Return what files contain; of object stores several are read at a time.

    Raises
    ------
    DataError
        One can't be read.
    """
    try:
        # Of all calls of fsspec for several files this alone takes names with wildcards in them as they are.
        contents = fs.cat_ranges(paths, None, None, on_error="return")
    except Exception as error:
        raise unreadable(fs, paths[0], error) from error
    for path, content in zip(paths, contents, strict=True):
        if isinstance(content, BaseException):
            raise unreadable(fs, path, content) from content
    return [bytes(content) for content in contents]


def unreadable(fs: Any, path: str, error: BaseException) -> DataError:
    """Return the error of a file that can't be read; values of ``storage_options`` are masked in it and its causes."""
    url = fs.unstrip_protocol(path)
    place = path if url.startswith("file://") else url
    trouble = trouble_of(error, place, fs.storage_options)
    is_gone = isinstance(error, FileNotFoundError) or not is_url(place)
    gone = "It is gone since the files were listed, or Dask workers can't reach it."
    return DataError(
        f"File {place!r} can't be read: {trouble.why.rstrip('.')}.",
        trouble.cause or (gone if is_gone else ""),
        trouble.change,
    )


def file_rows(
    finish: Callable[[list[Any]], Any], skips: FileDecoder | None, fs: Any, packed: bytes, labels: np.ndarray | None
) -> Any:
    """Read the files of a partition.

    Parameters
    ----------
    finish
        Given the columns: paths and contents, object ``(n, 2)``; and the labels where there are some.
    skips
        Leaves out files that it can't decode. Default: nothing is decoded here.
    fs, packed, labels
        The files, as :class:`dask_train.file_rows.source.FileSet` has them.

    Returns
    -------
    What ``finish`` makes.
    """
    paths = unpacked_paths(packed)
    rows = np.empty((len(paths), *FILE_SHAPE), object)
    rows[:, 0] = list(map(shown, paths))
    for number, content in enumerate(contents_of(fs, paths)):
        rows[number, 1] = content
    if skips is not None:
        good = decodable(skips, rows)
        rows, labels = rows[good], None if labels is None else labels[good]
    return finish([rows] if labels is None else [rows, np.ascontiguousarray(labels)])


def decodable(decoder: FileDecoder, rows: np.ndarray) -> np.ndarray:
    """Return which files can be decoded, bool ``(n,)``."""
    decode = decoder.opened()
    is_decodable = np.ones(len(rows), bool)
    for number, (path, content) in enumerate(rows):
        try:
            decode.decoded(path, content)
        except DataError:
            is_decodable[number] = False
    return is_decodable


def decoded_rows(decoder: FileDecoder, fs: Any, packed: bytes, labels: np.ndarray | None) -> np.ndarray:
    """Return the rows of the files of a partition, decoded, ``(n, *row_shape)``.

    Raises
    ------
    DataError
        A file can't be read or decoded, or becomes a row that is not like the others.
    """
    _ = labels  # they are known without a task
    paths, decode = unpacked_paths(packed), decoder.opened()
    rows = np.empty((len(paths), *decoder.row_shape), decoder.dtype)
    for number, (path, content) in enumerate(zip(paths, contents_of(fs, paths), strict=True)):
        decode.into(rows[number, ...], path, content, np.random.default_rng)
    return rows
