"""What a process tells about itself."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import socket
import subprocess
import sys
import time

import pytest

from dask_train.cluster.on_worker import condition
from dask_train.cluster.on_worker.environment import installed_versions


def test_this_process():
    told = asyncio.run(condition.tell(installed_versions))
    assert set(told) == set(condition.Condition.__annotations__)
    assert told["host"] == socket.gethostname()
    assert told["asked_at"] <= told["answered_at"] <= time.time()
    assert told["versions"]["dask_train"]
    assert (told["status"], told["has_nanny"], told["memory_limit"]) == ("running", False, None)
    assert 0 < told["memory_used"] < 2**40


def test_versions_are_told_without_imports():
    code = """
import sys
from dask_train.cluster.on_worker.environment import installed_versions
before = set(sys.modules)
told = installed_versions()
assert {"python", "dask_train", "numpy", "dask", "distributed"} <= set(told), told
assert not {"tensorflow", "keras", "torch"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_only_the_standard_library_is_imported():
    code = f"""
import importlib.util, sys
spec = importlib.util.spec_from_file_location("condition", {condition.__file__!r})
spec.loader.exec_module(importlib.util.module_from_spec(spec))
foreign = [name for name, module in sys.modules.items() if "site-packages" in (getattr(module, "__file__", "") or "")]
assert not [name for name in foreign if name != "sitecustomize"], foreign
"""
    assert importlib.util.find_spec("psutil")
    subprocess.run([sys.executable, "-S", "-c", code], check=True, timeout=60)


@pytest.fixture
def nvidia_smi(tmp_path, monkeypatch):
    """Says what nvidia-smi does."""
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")

    def does(script):
        program = tmp_path / "nvidia-smi"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)

    return does


def test_gpus(nvidia_smi):
    nvidia_smi("echo 'NVIDIA H200, 143771 MiB'; echo 'NVIDIA H200, 143771 MiB'")
    assert condition._gpus() == (["NVIDIA H200, 143771 MiB"] * 2, "")
    nvidia_smi("echo 'Failed to initialize NVML:'; echo 'Driver/library version mismatch' >&2; exit 18")
    assert condition._gpus() == ([], "nvidia-smi: Failed to initialize NVML: Driver/library version mismatch")


def test_gpus_that_hang_are_not_waited_for(nvidia_smi, monkeypatch):
    monkeypatch.setattr(condition, "NVIDIA_SMI_S", 0.1)
    nvidia_smi("exec sleep 60")
    assert condition._gpus() == ([], "nvidia-smi gave no answer within 0.1 s")


def test_no_gpus(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert condition._gpus() == ([], "")


STAT = {2: "anon 5\ninactive_file 100\n", 1: "cache 5\ninactive_file 7\ntotal_inactive_file 100\n"}


@pytest.mark.parametrize("at_root", [True, False])  # as a container and the machine itself see it
@pytest.mark.parametrize(
    ("version", "line", "folder", "limit", "used"),
    [
        (2, "0::/jobs/one", "", "memory.max", "memory.current"),
        (1, "4:cpu,memory:/jobs/one", "memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
    ],
)
def test_memory_of_the_control_group(tmp_path, at_root, version, line, folder, limit, used):
    group = tmp_path / folder if at_root else tmp_path / folder / "jobs" / "one"
    group.mkdir(parents=True, exist_ok=True)
    membership = tmp_path / "cgroup"
    membership.write_text(f"7:pids:/jobs/one\n{line}\n")
    (group / limit).write_text("4096\n")
    (group / used).write_text("1024\n")
    assert condition._cgroup_memory(membership, tmp_path) == (4096, 1024)
    (group / "memory.stat").write_text(STAT[version])
    assert condition._cgroup_memory(membership, tmp_path) == (4096, 924)
    (group / limit).write_text({2: "max", 1: "9223372036854771712"}[version])
    assert condition._cgroup_memory(membership, tmp_path) == (None, 924)


def test_without_control_groups(tmp_path):
    assert condition._cgroup_memory(tmp_path / "none", tmp_path) == (None, None)


def test_a_port_is_open_for_a_while(no_leaks):
    async def try_it():
        port = await condition.open_port("127.0.0.1", 0.2)
        first = await condition.reach("127.0.0.1", port, 5)
        async with asyncio.timeout(10):
            while not (later := await condition.reach("127.0.0.1", port, 5)):
                await asyncio.sleep(0.02)
        return first, later

    with no_leaks():
        first, later = asyncio.run(try_it())
    assert first == ""
    assert "Connect call failed" in later


def test_an_address_that_does_not_answer():
    with socket.socket() as full:  # a queue of one, which is taken: further calls get no answer
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        taken = []
        for _ in range(3):
            one = socket.socket()
            one.setblocking(False)
            one.connect_ex(full.getsockname())
            taken.append(one)
        assert asyncio.run(condition.reach(*full.getsockname(), 0.2)) == "no answer within 0.2 s"
        for one in taken:
            one.close()
