"""What a process tells about itself."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import socket
import subprocess
import sys
import time
from types import SimpleNamespace

import psutil
import pytest

from dask_train.cluster.installed import installed_versions
from dask_train.doctor import health_probe


def test_this_process():
    told = asyncio.run(health_probe.tell(installed_versions, lambda: (None, 1)))
    assert set(told) == set(health_probe.HealthProbe.__annotations__)
    assert told["host"] == socket.gethostname()
    assert told["asked_at"] <= told["answered_at"] <= time.time()
    assert told["versions"]["dask_train"]
    assert (told["status"], told["has_nanny"], told["memory_limit"]) == (
        "running",
        False,
        psutil.virtual_memory().total,
    )
    assert 0.01 * told["memory_limit"] < told["memory_used"] < told["memory_limit"], "of the machine, not this process"


def test_a_container_tells_its_own_memory_where_that_is_less_than_the_machines():
    told = asyncio.run(health_probe.tell(installed_versions, lambda: (2 << 20, 1 << 20)))
    assert (told["memory_limit"], told["memory_used"]) == (2 << 20, 1 << 20)
    told = asyncio.run(health_probe.tell(installed_versions, lambda: (1 << 60, 1 << 20)))
    assert told["memory_limit"] == psutil.virtual_memory().total


def test_versions_are_told_without_imports():
    code = """
import sys
from dask_train.cluster.installed import installed_versions
before = set(sys.modules)
told = installed_versions()
assert {"python", "dask_train", "numpy", "dask", "distributed"} <= set(told), told
assert not {"tensorflow", "keras", "torch"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_only_the_standard_library_is_imported():
    code = f"""
import importlib.util, sys
spec = importlib.util.spec_from_file_location("health_probe", {health_probe.__file__!r})
spec.loader.exec_module(importlib.util.module_from_spec(spec))
foreign = [name for name, module in sys.modules.items() if "site-packages" in (getattr(module, "__file__", "") or "")]
assert not [name for name in foreign if name != "sitecustomize"], foreign
"""
    assert importlib.util.find_spec("psutil")
    subprocess.run([sys.executable, "-S", "-c", code], check=True, timeout=60)


def test_templates_of_a_dask_worker():
    class Plugin:
        def pids(self):
            return {os.getpid(): "torch", 1 << 30: "keras"}

        def idle_s(self):
            return {os.getpid(): 2.5, 1 << 30: 0.0}

    dask_worker = SimpleNamespace(plugins={"dask-train-templates": Plugin()})
    gone, here = asyncio.run(health_probe.tell_templates(dask_worker))
    assert gone == {"imports": "keras", "pid": 1 << 30, "memory": None, "idle_s": 0.0}
    assert 1 << 20 < here.pop("memory") < 2 * psutil.Process().memory_info().rss
    assert here == {"imports": "torch", "pid": os.getpid(), "idle_s": 2.5}


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
    nvidia_smi("echo 'NVIDIA H200, 143771 MiB, 580.1'; echo 'NVIDIA H200, 143771 MiB, 580.1'")
    assert health_probe._gpus() == (["NVIDIA H200, 143771 MiB, driver 580.1"] * 2, "")
    nvidia_smi("echo 'Failed to initialize NVML:'; echo 'Driver/library version mismatch' >&2; exit 18")
    assert health_probe._gpus() == ([], "nvidia-smi: Failed to initialize NVML: Driver/library version mismatch")


def test_gpus_that_hang_are_not_waited_for(nvidia_smi, monkeypatch):
    monkeypatch.setattr(health_probe, "NVIDIA_SMI_S", 0.1)
    nvidia_smi("exec sleep 60")
    assert health_probe._gpus() == ([], "nvidia-smi gave no answer within 0.1 s")


def test_no_gpus(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert health_probe._gpus() == ([], "")


def test_a_port_is_open_for_a_while(no_leaks):
    async def try_it():
        port = await health_probe.open_port("127.0.0.1", 0.2)
        first = await health_probe.reach("127.0.0.1", port, 5)
        async with asyncio.timeout(10):
            while not (later := await health_probe.reach("127.0.0.1", port, 5)):
                await asyncio.sleep(0.02)
            while len(asyncio.all_tasks()) > 1:  # it may be taking in the last one that has come
                await asyncio.sleep(0.02)
            await asyncio.sleep(0.02)  # what is hung up on is closed in the loop's next turn
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
        assert asyncio.run(health_probe.reach(*full.getsockname(), 0.2)) == "no answer within 0.2 s"
        for one in taken:
            one.close()
