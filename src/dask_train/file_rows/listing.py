"""Which files there are: found in the client, in a fixed order, before anything of them is read."""

from __future__ import annotations

import glob
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dask_train.file_rows.local_wildcards import found_here
from dask_train.stores import checked_options, is_local, place_anywhere, reaching

# Archives whose members are read by seeking in one file that all threads share, without a lock: bytes would mix.
UNLOCKED = frozenset({"tar", "libarchive"})
# What the packages of file systems call the tag or time of a file; the first that is there counts. Listings and single
# answers of a store may have times of different precision, so tags come first: they are the same in both.
_TAGS = (
    *("ETag", "etag", "CRC", "sha", "hex"),  # object stores and HTTP, ZIP archives, GitHub, git
    *("mtime", "LastModified", "last_modified", "Last-Modified", "modificationTime", "modify"),  # HDFS and FTP last
    "created",  # of files in memory
)
_SEVERAL = "paths are of several file systems; pass those of one."


class FileListing(NamedTuple):
    """Files of one file system.

    Attributes
    ----------
    fs
        The fsspec file system.
    paths
        As ``fs`` has them.
    sizes
        In bytes.
    stamps
        Texts of which each changes with its file: the size, and the store's tag or the time.
    """

    fs: Any
    paths: tuple[str, ...]
    sizes: list[int]
    stamps: tuple[str, ...]


def listed(urlpath: Any, storage_options: Mapping[str, Any] | None = None) -> FileListing:
    """Return the files that paths and wildcards name.

    A list of paths keeps its order, and a path that stands there twice is there twice. What one wildcard finds is
    sorted.

    Parameters
    ----------
    urlpath
        As :func:`dask_train.files` takes it.
    storage_options
        Of the file system.

    Raises
    ------
    TypeError, ValueError
        It is no path, there are no such files, a wildcard finds what stands elsewhere in the list, paths are of
        several file systems, or their store can't be reached.
    """
    patterns = _patterns(urlpath)
    options = checked_options(storage_options, paths=patterns[0])
    paths: list[str] = []
    sizes: list[int] = []
    stamps: list[str] = []
    pattern_of: dict[str, str] = {}
    fs: Any = None
    for pattern in patterns:
        with reaching("paths", pattern, options) as (opened, path):
            if fs is None:
                fs = opened
                fs.invalidate_cache()  # the packages of stores keep listings for the life of the process
            _check_same(fs, opened)
            several = _found(fs, path)
        files = {name: int(info["size"] or 0) for name, info in several.items() if info["type"] == "file"}
        if not files:
            hint = " It is a folder: name its files, as in 'train/*/*.jpg'." if several else ""
            raise ValueError(f"There is no file {pattern!r}.{hint}")
        for name in sorted(files):
            _check_found_once(name, pattern_of.setdefault(name, pattern), pattern)
            paths.append(name)
            sizes.append(files[name])
            stamps.append(f"{files[name]} {tag_of(several[name])}")
    return FileListing(fs, tuple(paths), sizes, tuple(stamps))


def tag_of(info: Mapping[str, Any]) -> str:
    """Return a store's own tag of a file, or the time of the file; empty where the store tells neither."""
    return str(next((info[name] for name in _TAGS if info.get(name) is not None), ""))


def _check_same(first: Any, other: Any) -> None:
    """Refuse a second file system, such as another server or ZIP archive: it may have other files of these paths."""
    if other != first:
        raise ValueError(f"{_SEVERAL} A server, an account and a ZIP archive are file systems of their own.")


def _found(fs: Any, path: str) -> dict[str, Any]:
    """Return the information on what a path or wildcard stands for, by path."""
    # "y[1].npy" may be a file's own name, and as a wildcard it would find another file, y1.npy.
    alone = {} if "*" in path or "?" in path else _alone(fs, path)
    if alone or not glob.has_magic(path):
        return alone
    found: dict[str, Any] = found_here(fs, path) if is_local(fs) else fs.glob(path, detail=True)
    return found


def _check_found_once(name: str, first: str, second: str) -> None:
    """Refuse a file that two entries of a list find: which of the two places is meant is not known."""
    if first != second and (glob.has_magic(first) or glob.has_magic(second)):
        raise ValueError(
            f"paths has the file {name!r} twice: {first!r} and {second!r} both find it. Use wildcards that find "
            "different files; to have a file twice, list its path twice."
        )


def _alone(fs: Any, path: str) -> dict[str, Any]:
    """Return the information on one path; ``fs.exists`` would take a refused login for a file that is not there."""
    try:
        return {path: fs.info(path)}
    except FileNotFoundError:
        return {}


def _patterns(urlpath: Any) -> list[str]:
    several = [urlpath] if isinstance(urlpath, str | os.PathLike) else urlpath
    if not isinstance(several, Sequence) or not all(isinstance(each, str | os.PathLike) for each in several):
        raise TypeError(f"paths is a {type(urlpath).__name__}; pass a path or URL with wildcards, or a list of paths.")
    if not several:
        raise ValueError("paths is an empty list; pass the paths of files.")
    patterns = [os.fspath(each) for each in several]
    if len({pattern.partition("://")[0] if "://" in pattern else "" for pattern in patterns}) > 1:
        raise ValueError(_SEVERAL)
    # Dask workers may have another working directory.
    if archives := [pattern for pattern in patterns if pattern.partition("://")[0] in UNLOCKED]:
        raise ValueError(
            f"{archives[0]!r} names members of one archive, which several threads can't read at the same time. Unpack "
            "it, or make a ZIP archive of it: 'zip://*.jpg::pictures.zip'."
        )
    return [*map(place_anywhere, patterns)]
