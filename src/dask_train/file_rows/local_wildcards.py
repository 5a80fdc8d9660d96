"""Wildcards on the file system of this host, where files and folders may be symbolic links to others."""

from __future__ import annotations

import glob
import os
import re
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from typing import Any


def found_here(fs: Any, pattern: str) -> dict[str, Any]:
    """Return the information on files and folders that a wildcard finds, by path; that of a link is of its target.

    ``fs.glob`` finds the same, without what is a link or lies in a linked folder.

    Parameters
    ----------
    fs
        The local file system of fsspec.
    pattern
        An absolute path with wildcards. ``**`` enters each folder once, by a path without further links if there is
        one, so that links to folders above end.

    Raises
    ------
    ValueError
        A link that it finds, or a link where it looks for folders, has no target.
    """
    from fsspec.utils import glob_translate  # type: ignore[import-untyped]  # its rules, as of all other file systems

    parts = pattern.split("/")
    start = next(place for place, part in enumerate(parts) if glob.has_magic(part))
    by_level = [re.compile(glob_translate("/".join(parts[:end]))) for end in range(start + 1, len(parts) + 1)]
    is_deep = "**" in parts
    found: dict[str, Any] = {}
    seen: set[tuple[int, int]] = set()
    folders, linked = deque([("/".join(parts[:start]), 0)]), deque[tuple[str, int]]()
    while folders or linked:
        folder, level = (folders or linked).popleft()
        is_last = is_deep or level + 1 == len(by_level)
        matches = by_level[-1 if is_deep else level].match
        for entry in _entries(folder, seen if is_deep else set()):
            path, is_link = f"{folder}/{entry.name}", entry.is_symlink()
            is_found = matches(path) is not None
            if is_found and is_link and not os.path.exists(path):
                raise ValueError(
                    f"{path!r} is a link to {os.readlink(path)!r}, which is not there or can't be reached, so a file "
                    "or folder is missing. Bring back what it links to, or remove the link."
                )
            if is_found and is_last:
                with suppress(OSError):  # it is gone since
                    found[path] = fs.info(path)
            is_entered = is_deep or (is_found and not is_last)
            if is_entered and (os.path.isdir(path) if is_link else entry.is_dir()):
                (linked if is_link else folders).append((path, level + 1))
    return found


def _entries(folder: str, seen: set[tuple[int, int]]) -> Iterator[os.DirEntry[str]]:
    """Yield what a folder has, sorted; nothing if it was seen before or can't be listed."""
    try:
        there = os.stat(f"{folder}/")
        if (there.st_dev, there.st_ino) in seen:
            return
        seen.add((there.st_dev, there.st_ino))
        with os.scandir(f"{folder}/") as entries:
            several = sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return
    yield from several
