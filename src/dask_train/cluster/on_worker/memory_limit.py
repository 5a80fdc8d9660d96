"""Whether the kernel has killed a process of this container for its memory limit."""

from __future__ import annotations

from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")


def num_oom_kills(pid: int | str = "self") -> int:
    """How many processes of a process's memory cgroup were killed for its limit; 0 where that can't be told.

    Notes
    -----
    ``memory.events`` of cgroup v2 (https://docs.kernel.org/admin-guide/cgroup-v2.html), ``memory.oom_control`` of v1.
    In most containers the cgroup of the container itself is mounted at the root.
    """
    for folder in _folders(pid):
        for name in ("memory.events", "memory.oom_control"):
            try:
                lines = (folder / name).read_text().splitlines()
            except OSError:
                continue
            for line in lines:
                if line.startswith("oom_kill "):
                    return int(line.split()[1])
    return 0


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
