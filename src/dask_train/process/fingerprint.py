"""What a new process would find here: a template serves as long as it found the same."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from pathlib import Path

# Modules, and what says where else to look.
_MODULES = (".py", ".pyc", ".so")
_FOLDERS = (".pth", ".zip", ".egg", ".egg-link")
_VERSIONS = (".dist-info", ".egg-info")
_LIMITS = tuple(getattr(resource, name) for name in sorted(dir(resource)) if name.startswith("RLIMIT_"))

# The name under which it is imported, empty for what concerns all, and what changes with it.
_Entry = tuple[str, Hashable]


@dataclass(frozen=True)
class Fingerprint:
    """What a process that is started now finds: its code, its folder, its limits.

    A package that is installed, upgraded or removed changes the names in a folder of the import path, and a file that
    is uploaded its time; both are looked for at the top of each folder, where every import begins. Files deeper down
    are not looked at.

    Attributes
    ----------
    settings
        All that is not of the import path.
    path
        Each entry of the import path, with what can be imported from there.
    """

    settings: Hashable
    path: tuple[tuple[str, frozenset[_Entry]], ...]

    @classmethod
    def now(cls) -> Fingerprint:
        """Return the fingerprint of this process's children."""
        limits = tuple(resource.getrlimit(limit) for limit in _LIMITS)
        place = (sys.executable, os.getcwd(), _text("/proc/self/cgroup"), _owner())
        settings = (place, frozenset(os.sched_getaffinity(0)), limits)
        return cls(settings, tuple((entry, frozenset(_importable(entry))) for entry in sys.path))

    def only(self, names: frozenset[str]) -> Fingerprint:
        """As far as it concerns a process that has imported these: other modules are found anew, or not at all."""
        path = ((entry, frozenset(one for one in found if not one[0] or one[0] in names)) for entry, found in self.path)
        return Fingerprint(self.settings, tuple(path))


def _owner() -> tuple[str, ...]:
    """Return the lines about users, groups and the mask of new files."""
    lines = _text("/proc/self/status").splitlines()
    return tuple(line for line in lines if line.startswith(("Umask:", "Uid:", "Gid:", "Groups:", "CapEff:")))


def _importable(entry: str) -> Iterator[_Entry]:
    """Yield packages, their versions, and modules of one entry of the import path; its time where it is a file."""
    try:
        if os.path.isdir(entry):
            with os.scandir(entry) as listing:
                yield from filter(None, map(_one, listing))
        else:
            found = os.stat(entry)
            yield "", (found.st_mtime_ns, found.st_size)
    except OSError:  # there is none, or it has just gone
        return


def _one(entry: os.DirEntry[str]) -> _Entry | None:
    name = entry.name
    if entry.is_dir():
        if name.endswith(_VERSIONS):
            return "", name
        is_package = name.isidentifier() and os.path.exists(os.path.join(entry.path, "__init__.py"))
        return (name, name) if is_package else None
    if not name.endswith(_MODULES + _FOLDERS):
        return None
    found = entry.stat()
    return (name.partition(".")[0] if name.endswith(_MODULES) else ""), (name, found.st_mtime_ns, found.st_size)


def _text(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
