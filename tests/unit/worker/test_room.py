"""What a Dask worker can take beside what its own measure does not show."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import psutil

from dask_train.worker.room import room, share_bytes
from dask_train.worker.templates import TemplateProcesses

GIB = 1 << 30


def dask_worker(templates: dict[int, str]) -> Any:
    plugin = object.__new__(TemplateProcesses)
    plugin._templates = SimpleNamespace(pids=lambda: templates)  # type: ignore[assignment]
    return SimpleNamespace(
        plugins={TemplateProcesses.name: plugin},
        memory_manager=SimpleNamespace(memory_limit=100 * GIB, memory_target_fraction=0.5),
        monitor=SimpleNamespace(get_process_memory=lambda: 3 * GIB),
    )


def test_templates_take_memory_that_the_limit_does_not_see():
    without = room(None, dask_worker({}))
    assert without.bytes <= 47 * GIB
    found = room(None, dask_worker({os.getpid(): "large", 1 << 30: "gone"}))
    assert found.templates["gone"] == 0
    assert 1 << 20 < found.templates["large"] < 2 * psutil.Process().memory_info().rss
    assert found.bytes == without.bytes - found.templates["large"]
    assert room(GIB, dask_worker({os.getpid(): "large"})).bytes == room(GIB, dask_worker({})).bytes, "as it is set"


def test_the_share_of_no_process():
    assert share_bytes(0) == share_bytes(1 << 30) == 0
