"""A file that is there whole or not at all.

Owns the write to disk; what the bytes are is up to the caller.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Collection
from pathlib import Path

from dask_train.stores import named_place

# What follows the name of a file that is being written, after a dot before it.
_PARTIAL = re.compile(r"\.(.+)\.[0-9a-f]{8}\.partial")


def write_whole(path: str | os.PathLike[str], content: bytes) -> Path:
    """Put bytes into a file in one step: readers see the old file or the new one, never a part.

    Parameters
    ----------
    path
        The file to make or replace; its folder must exist.
    content
        All bytes of the file.

    Returns
    -------
    Path
        The file, as it was named.

    Raises
    ------
    FileNotFoundError
        The folder doesn't exist.
    OSError
        The file can't be written; what was at ``path`` before is still there.
    """
    target = Path(named_place(path))
    if not target.parent.is_dir():
        raise FileNotFoundError(
            f"{target} can't be written: the folder {target.parent} does not exist. Make it, or name another path."
        )
    # Next to the target, as a rename is one step only within a file system. Not `tempfile`, whose files only their
    # owner may read: a report is there to be shown, so the umask decides.
    partial = target.with_name(f".{target.name}.{secrets.token_hex(4)}.partial")
    try:
        with partial.open("xb") as file:
            file.write(content)
        partial.replace(target)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    return target


def remove_partials(paths: Collection[str]) -> None:
    """Remove what killed writers of these files have left beside them; no other process may write them now.

    Parameters
    ----------
    paths
        Files of one folder.
    """
    names = {os.path.basename(path) for path in paths}
    for folder in {os.path.dirname(path) for path in paths}:
        for name in os.listdir(folder):
            match = _PARTIAL.fullmatch(name)
            if match and match[1] in names:
                Path(folder, name).unlink(missing_ok=True)
