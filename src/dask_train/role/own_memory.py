"""How much memory a role's process has for itself."""

from __future__ import annotations

import os

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def own_memory_bytes() -> int:
    """Memory of this process in bytes, without files and shared memory that it maps, as its data sets are.

    See proc_pid_statm(5): resident pages, less those of files and of shared memory.
    """
    with open("/proc/self/statm", "rb") as file:
        _, resident, shared, *_ = file.read().split()
    return (int(resident) - int(shared)) * _PAGE_BYTES
