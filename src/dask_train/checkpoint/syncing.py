"""Files that survive a host that loses power: synced, with the folders that name them."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import Any


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
    _sync(str(PurePosixPath(root).parent))


def put_manifest(system: Any, root: str, name: str, content: bytes) -> None:
    """Write a checkpoint's manifest in one step, as stores do: readers find the old one, the new one, or none.

    On local disks it is written into the checkpoint's own folder first: what a kill leaves there goes with the folder.
    """
    from fsspec.implementations.local import LocalFileSystem

    file = f"{root}/{name}.json"
    if isinstance(system, LocalFileSystem):
        partial = f"{root}/{name}/manifest.partial"
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
