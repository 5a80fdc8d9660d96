"""What one Dask worker can take, as it says itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import psutil
from distributed import Worker

from dask_train.data.pool import process_pool
from dask_train.process.memory_limit import bytes_left
from dask_train.worker.templates import TemplateProcesses


@dataclass(frozen=True, kw_only=True)
class Room:
    """What one Dask worker can take.

    Attributes
    ----------
    bytes
        Of results, before it spills, less what its templates take, which its limit does not see; as
        ``train.memory.limit`` says, where it is set.
    left
        What its container can still take; None without a limit.
    templates
        What each of its templates takes, by its imports
        (:func:`~dask_train.process.templates.name_of`): processes forked of it share that part.
    template_pids
        Their processes, by the same names; Dask workers of one host may share one.
    """

    bytes: int
    left: int | None
    templates: Mapping[str, int] = field(default_factory=dict)
    template_pids: Mapping[str, int] = field(default_factory=dict)


def room(limit: int | None, dask_worker: Worker) -> Room:
    """Return what this Dask worker can take; runs there."""
    pids = {name: pid for pid, name in TemplateProcesses.of(dask_worker).pids().items()}
    templates = {name: share_bytes(pid) for name, pid in pids.items()}
    shared = process_pool().used_bytes  # which no process's own memory shows
    if limit is not None:
        return Room(bytes=max(0, limit - shared), left=None, templates=templates, template_pids=pids)
    manager = dask_worker.memory_manager
    most = int((manager.memory_limit or 0) * (manager.memory_target_fraction or 1.0))
    used = dask_worker.monitor.get_process_memory()
    room = 1 << 62 if not most else max(0, most - used - shared - sum(templates.values()))
    left = bytes_left()
    left = None if left is None else left + process_pool().warm_bytes
    return Room(bytes=room, left=left, templates=templates, template_pids=pids)


def share_bytes(pid: int) -> int:
    """Memory of a process, what it shares with others divided among them (PSS); 0 for none."""
    if not pid:
        return 0
    try:
        return int(psutil.Process(pid).memory_full_info().pss)
    except psutil.Error:  # it has just ended
        return 0
