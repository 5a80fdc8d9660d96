"""The memory limit of this container: how much is left of it, and whether the kernel has killed for it.

Notes
-----
cgroup v2: ``memory.max``, ``memory.current``, ``memory.stat``, ``memory.events``
(https://docs.kernel.org/admin-guide/cgroup-v2.html); v1: ``memory.limit_in_bytes``, ``memory.usage_in_bytes``,
``memory.oom_control``. In most containers the cgroup of the container itself is mounted at the root.
"""

from __future__ import annotations

from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
# v1 says "no limit" with a number that no machine has.
_NO_LIMIT_BYTES = 1 << 60


def num_oom_kills(pid: int | str = "self") -> int:
    """How many processes of a process's memory cgroup were killed for its limit; 0 where that can't be told."""
    for folder in _folders(pid):
        for name in ("memory.events", "memory.oom_control"):
            if (found := _field(folder / name, "oom_kill")) is not None:
                return found
    return 0


def bytes_left(pid: int | str = "self") -> int | None:
    """What a process's memory cgroup may still take, page cache that can be dropped included; None without a limit.

    Shared memory that was written with ``write()`` counts in the cgroup, and in no process.
    """
    left = []
    for folder in _folders(pid):
        for limit, used in (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")):
            most, current = _number(folder / limit), _number(folder / used)
            if most is not None and current is not None and most < _NO_LIMIT_BYTES:
                stat = folder / "memory.stat"
                droppable = _field(stat, "inactive_file") or _field(stat, "total_inactive_file") or 0
                left.append(max(0, most - current + droppable))
    return min(left, default=None)


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
        lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    except OSError:
        lines = []
    found = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "" or "memory" in controllers.split(","):
            found.append(_ROOT / controllers / path.lstrip("/"))
    return [*found, _ROOT, _ROOT / "memory"]
