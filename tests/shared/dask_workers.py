"""Which Dask worker a role belongs to, for roles that kill it."""

from __future__ import annotations

import os
from pathlib import Path


def own_dask_worker() -> int:
    """Return the process of this role's Dask worker.

    It is the parent of a role that has started anew. A role that a template has forked has a guard as its parent,
    whose pidfds are of the role and of the Dask worker (proc_pid_fdinfo(5)).
    """
    watched = set()
    for file in Path(f"/proc/{os.getppid()}/fdinfo").iterdir():
        watched.update(int(line[4:]) for line in file.read_text().splitlines() if line.startswith("Pid:"))
    if os.getpid() not in watched:
        return os.getppid()
    (found,) = watched - {os.getpid()}
    return found
