"""The memory limit of this container: how much is left of it, and whether the kernel has killed for it.

Notes
-----
cgroup v2: ``memory.max``, ``memory.current``, ``memory.stat``, ``memory.events``
(https://docs.kernel.org/admin-guide/cgroup-v2.html); v1: ``memory.limit_in_bytes``, ``memory.usage_in_bytes``,
``memory.oom_control``. A container sees its own cgroup at the root, whatever path it is told
(https://man7.org/linux/man-pages/man7/cgroup_namespaces.7.html).

This travels by value to Dask workers that may lack dask-train, so it imports the standard library alone.
"""

from __future__ import annotations

from pathlib import Path

_ROOT, _PROC = Path("/sys/fs/cgroup"), Path("/proc")
# v1 says "no limit" with a number that no machine has.
_NO_LIMIT_BYTES = 1 << 60


def num_oom_kills(pid: int | str = "self") -> int:
    """Return how many processes of a process's memory cgroup were killed for its limit; 0 if that is unknown."""
    for folder in _folders(pid):
        for name in ("memory.events", "memory.oom_control"):
            if (num_kills := _field(folder / name, "oom_kill")) is not None:
                return num_kills
    return 0


def bytes_left(pid: int | str = "self") -> int | None:
    """Return what a memory cgroup may still take, with page cache that can be dropped; None without a limit.

    Shared memory that was written with ``write()`` counts in the cgroup, and in no process.
    """
    groups = [(limit, used) for limit, used in map(_limit_and_use, _folders(pid)) if limit is not None]
    return min((max(0, limit - used) for limit, used in groups if used is not None), default=None)


def limit_and_use() -> tuple[int | None, int | None]:
    """Limit and use of this process's own cgroup, without page cache that can be dropped, as Kubernetes counts."""
    known = ((limit, used) for limit, used in map(_limit_and_use, _folders("self")) if used is not None)
    return next(known, (None, None))


def _limit_and_use(folder: Path) -> tuple[int | None, int | None]:
    for names in (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")):
        limit, used = (_number(folder / name) for name in names)
        if used is not None:
            stat = folder / "memory.stat"
            droppable = _field(stat, "total_inactive_file") or _field(stat, "inactive_file") or 0
            return None if limit is None or limit >= _NO_LIMIT_BYTES else limit, max(0, used - droppable)
    return None, None


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):  # "max"
        return None


def _field(path: Path, name: str) -> int | None:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith(f"{name} ")), None)


def _folders(pid: int | str) -> list[Path]:
    try:
        lines = (_PROC / str(pid) / "cgroup").read_text().splitlines()
    except OSError:
        lines = []
    folders = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            folders.append(_ROOT / path.lstrip("/"))
        elif "memory" in controllers.split(","):  # which may be mounted together with others, or alone
            folders += [_ROOT / mounted / path.lstrip("/") for mounted in (controllers, "memory")]
    return [*folders, _ROOT, _ROOT / "memory"]
