"""Whether the kernel has killed a process for its container's memory limit."""

from __future__ import annotations

import os

import pytest

from dask_train.cluster.on_worker import memory_limit
from dask_train.cluster.on_worker.memory_limit import num_oom_kills


@pytest.mark.parametrize(
    ("name", "folder", "lines"),
    [
        ("memory.events", "", "oom 3\noom_kill 2\noom_group_kill 0\n"),
        ("memory.oom_control", "memory", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"),
    ],
)
def test_kills_of_a_container(tmp_path, monkeypatch, name, folder, lines):
    monkeypatch.setattr(memory_limit, "_ROOT", tmp_path)
    assert num_oom_kills() == 0
    (tmp_path / folder).mkdir(exist_ok=True)
    (tmp_path / folder / name).write_text(lines)
    assert num_oom_kills() == 2
    assert num_oom_kills(os.getpid()) == 2


def test_the_group_of_the_process_comes_first(tmp_path, monkeypatch):
    monkeypatch.setattr(memory_limit, "_ROOT", tmp_path)
    (tmp_path / "memory.events").write_text("oom_kill 9\n")
    inner = tmp_path / "inner"
    inner.mkdir()
    (inner / "memory.events").write_text("oom_kill 1\n")
    monkeypatch.setattr(memory_limit, "_folders", lambda _: [inner, tmp_path])
    assert num_oom_kills() == 1


def test_a_process_that_is_gone(tmp_path, monkeypatch):
    monkeypatch.setattr(memory_limit, "_ROOT", tmp_path)
    assert num_oom_kills(2**22 + 1) == 0
