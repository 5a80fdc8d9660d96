"""The files of a checkpoint as they are written on a local disk first; and why one can't be kept, in words."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable
from pathlib import Path
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
