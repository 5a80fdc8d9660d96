"""What a new process would find here: a template serves as long as it found the same."""

from __future__ import annotations

import hashlib
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
# Lines of proc_pid_status(5) about users, groups, capabilities, the mask of new files, and memory's nodes.
_OWNER = ("Umask:", "Uid:", "Gid:", "Groups:", "Cap", "NoNewPrivs:", "Seccomp:", "Mems_allowed:")
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
        place = (sys.executable, os.getcwd(), place_of(os.getpid()))
        settings = (place, tuple(sorted(os.sched_getaffinity(0))), limits)
        return cls(settings, tuple((entry, frozenset(_importable(entry))) for entry in sys.path))

    def only(self, names: frozenset[str]) -> Fingerprint:
        """As far as it concerns a process that has imported these: other modules are found anew, or not at all."""
        path = (
            (entry, frozenset(one for one in contents if not one[0] or one[0] in names))
            for entry, contents in self.path
        )
        return Fingerprint(self.settings, tuple(path))

    def name(self, *more: Hashable) -> str:
        """Return a name that another process gives to the same, with the same of what else it depends on."""
        path = [(entry, sorted(map(repr, contents))) for entry, contents in self.path]
        return hashlib.sha256(repr((self.settings, path, more)).encode()).hexdigest()

    def without(self, folder: str) -> Fingerprint:
        """Return the same without a folder of the import path from which nothing can be imported, if it is that."""
        return Fingerprint(
            self.settings, tuple((entry, contents) for entry, contents in self.path if entry != folder or contents)
        )


def place_of(pid: int) -> tuple[Hashable, ...]:
    """Return whose a process is and where: all that its children have of it and that this process can tell of another.

    Its user, groups and capabilities, its namespaces and root, its control group, session, priorities and labels.
    """
    folder = f"/proc/{pid}"
    lines = _text(f"{folder}/status").splitlines()
    owner = tuple(line for line in lines if line.startswith(_OWNER))
    # Of this process as of any other: what starts there is in the new ones.
    spaces = tuple((name, _link(f"{folder}/ns/{name}")) for name in _namespaces())
    texts = tuple(_text(f"{folder}/{name}") for name in ("cgroup", "attr/current", "oom_score_adj", "loginuid"))
    try:
        priority = os.getpriority(os.PRIO_PROCESS, pid), os.sched_getscheduler(pid)
    except OSError:  # it is gone
        priority = (0, -1)
    return owner, spaces, _link(f"{folder}/root"), texts, priority


def _namespaces() -> list[str]:
    try:
        return sorted(os.listdir("/proc/self/ns"))
    except OSError:
        return []


def _importable(entry: str) -> Iterator[_Entry]:
    """Yield packages, their versions, and modules of one entry of the import path; its time where it is a file."""
    try:
        if os.path.isdir(entry):
            with os.scandir(entry) as listing:
                yield from filter(None, map(_one, listing))
        else:
            status = os.stat(entry)
            yield "", (status.st_mtime_ns, status.st_size)
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
    status = entry.stat()
    return (name.partition(".")[0] if name.endswith(_MODULES) else ""), (name, status.st_mtime_ns, status.st_size)


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _text(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
