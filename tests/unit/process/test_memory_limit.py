"""Whether the kernel has killed a process for its container's memory limit."""

from __future__ import annotations

import os

import pytest

from dask_train.process import memory_limit
from dask_train.process.memory_limit import bytes_left, limit_and_use, num_oom_kills


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


STAT = {2: "anon 5\ninactive_file 100\n", 1: "cache 5\ninactive_file 7\ntotal_inactive_file 100\n"}


@pytest.mark.parametrize("at_root", [True, False])  # as a container and the machine itself see it
@pytest.mark.parametrize(
    ("version", "line", "folder", "limit", "used"),
    [
        (2, "0::/jobs/one", "", "memory.max", "memory.current"),
        (1, "4:cpu,memory:/jobs/one", "memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
    ],
)
def test_memory_of_the_control_group(tmp_path, monkeypatch, at_root, version, line, folder, limit, used):
    group = tmp_path / folder if at_root else tmp_path / folder / "jobs" / "one"
    group.mkdir(parents=True, exist_ok=True)
    monkeypatch.setattr(memory_limit, "_ROOT", tmp_path)
    monkeypatch.setattr(memory_limit, "_PROC", tmp_path / "proc")
    (tmp_path / "proc" / "self").mkdir(parents=True)
    (tmp_path / "proc" / "self" / "cgroup").write_text(f"7:pids:/jobs/one\n{line}\n")
    (group / limit).write_text("4096\n")
    (group / used).write_text("1024\n")
    assert limit_and_use() == (4096, 1024)
    (group / "memory.stat").write_text(STAT[version])
    assert limit_and_use() == (4096, 924)
    (group / limit).write_text({2: "max", 1: "9223372036854771712"}[version])
    assert limit_and_use() == (None, 924)


def test_without_control_groups(tmp_path, monkeypatch):
    monkeypatch.setattr(memory_limit, "_ROOT", tmp_path)
    assert (limit_and_use(), bytes_left()) == ((None, None), None)


def test_the_tightest_of_the_groups_around_counts(tmp_path, monkeypatch):
    inner = tmp_path / "inner"
    inner.mkdir()
    for folder, limit, used in ((inner, "max", 300), (tmp_path, 1000, 400)):
        (folder / "memory.max").write_text(f"{limit}\n")
        (folder / "memory.current").write_text(f"{used}\n")
    monkeypatch.setattr(memory_limit, "_folders", lambda _: [inner, tmp_path])
    assert (bytes_left(), limit_and_use()) == (600, (None, 300))
