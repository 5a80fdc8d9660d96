"""The files of a checkpoint: written on a local disk first, and synced; and why one can't be kept, in words.

What was synced, with the folders that name it, survives a host that loses power.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any

from dask_train.checkpoint.manifest import files_of
from dask_train.checkpoint.place import CheckpointPlace
from dask_train.errors import CheckpointError
from dask_train.stores import trouble_of

_FULL = (errno.ENOSPC, errno.EDQUOT)


def write_locally(write: Callable[[Path], Any], folder: Path) -> dict[str, tuple[int, str]]:
    """Write the files of a checkpoint into a local folder; return them with their checksums.

    Raises
    ------
    CheckpointError
        The disk is full, or there are none.
    """
    shutil.rmtree(folder, ignore_errors=True)
    try:
        folder.mkdir(parents=True)
        write(folder)
    except OSError as error:
        if error.errno not in _FULL:
            raise
        raise CheckpointError(
            f"A checkpoint can't be written: no space is left at {error.filename or folder}.",
            "It is written there first, on the Dask worker's own disk, and copied to its place then.",
            "Make room there, or start the Dask workers with --local-directory on a larger disk.",
        ) from error
    files = files_of(folder)
    if not files:
        raise CheckpointError(
            "The function that was given to save_checkpoint has written no file.",
            change="Write into the folder that it is called with.",
        )
    return files


def checkpoint_error(place: CheckpointPlace, done: str, error: Exception) -> CheckpointError:
    """Return the error for a checkpoint that can't be "read" or "written", from an error of its file system."""
    trouble = trouble_of(error, place.url, place.storage_options)
    what = f"A checkpoint can't be {done} at {place.url}: {trouble.why}."
    if trouble.cause:
        return CheckpointError(what, trouble.cause, trouble.change)
    return CheckpointError(
        what,
        "Every host with a training role has to reach it.",
        "Pass checkpoint= a folder on a shared file system, or a URL for fsspec with its package installed.",
    )


def sync_files(system: Any, root: str, files: Iterable[str]) -> None:
    """Flush local files, and their folders up to the one that holds ``root``, to disk; stores do so by themselves.

    A rename or a new file lasts only when its folder is synced, too: ``man 2 fsync``.
    """
    from fsspec.implementations.local import LocalFileSystem  # type: ignore[import-untyped]

    if not isinstance(system, LocalFileSystem):
        return
    folders: set[str] = set()
    for file in files:
        _sync(file)
        below = PurePosixPath(file).relative_to(root).parents
        folders |= {str(PurePosixPath(root, folder)) for folder in below}
    for folder in sorted(folders, key=len, reverse=True):
        _sync(folder)
    with suppress(PermissionError):  # of a folder of others, which may be entered but not listed
        _sync(str(PurePosixPath(root).parent))


def put_manifest(system: Any, root: str, name: str, content: bytes) -> None:
    """Write a checkpoint's manifest in one step, as stores do: readers find the old one, the new one, or none.

    On local disks it is written into the checkpoint's own folder first: what a kill leaves there goes with the folder.
    """
    from fsspec.implementations.local import LocalFileSystem

    file = f"{root}/{name}.json"
    if isinstance(system, LocalFileSystem):
        partial = f"{root}/{name}/{secrets.token_hex(8)}.partial"  # files of the user lie there, of any name
        system.pipe_file(partial, content)
        _sync(partial)
        os.replace(partial, file)
    else:
        system.pipe_file(file, content)
    sync_files(system, root, [file])


def _sync(path: str) -> None:
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # a file system that knows no fsync of folders
            raise
    finally:
        os.close(opened)
