"""What one process of a cluster tells about itself and its machine, and whether a port there can be reached.

Everything here travels by value (``dask_train.cluster.by_value.ByValue``) to Dask workers that may lack dask-train, so
it imports the standard library alone. Nothing here loads a framework, and nothing keeps an event loop waiting.
"""

from __future__ import annotations

import asyncio
import math
import os
import resource
import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypedDict

# A driver in trouble lets nvidia-smi hang for minutes; where it is well, it answers within one or two seconds.
NVIDIA_SMI_S = 5.0


_SHM = Path("/dev/shm")  # noqa: S108 - asked for its size


class TemplateProbe(TypedDict):
    """A template process: what it has imported, its share of memory (PSS) in bytes, and since when it is unused."""

    imports: str
    pid: int
    memory: int | None
    idle_s: float


class HealthProbe(TypedDict):
    """What a process tells; sizes in bytes, None for what is not known or not limited, times in Unix seconds."""

    asked_at: float
    answered_at: float
    versions: dict[str, str]
    host: str
    status: str
    threads: int
    has_nanny: bool
    memory_limit: int | None
    memory_used: int | None
    cgroup: str
    cgroup_limit: int | None
    cgroup_used: int | None
    shm_free: int | None
    has_memfd: bool
    has_pidfd: bool
    gpus: list[str]
    gpu_problem: str
    cuda_visible_devices: str | None
    omp_num_threads: str | None
    open_files: int
    templates: list[TemplateProbe]


async def tell(
    installed_versions: Callable[[], dict[str, str]],
    limit_and_use: Callable[[], tuple[int | None, int | None]],
    dask_worker: Any = None,
) -> HealthProbe:
    """Return the condition of this process: a Dask worker, or a client.

    Of other modules there are the functions: :mod:`~dask_train.cluster.installed` tells versions, and
    :mod:`~dask_train.process.memory_limit` what the control group has.
    """
    asked_at = time.time()
    gpus, gpu_problem = await asyncio.to_thread(_gpus)
    memory_limit, memory_used = _memory(dask_worker)
    cgroup_limit, cgroup_used = limit_and_use()
    if not dask_worker and cgroup_limit and cgroup_limit < (memory_limit or math.inf):
        memory_limit, memory_used = cgroup_limit, cgroup_used  # a container sees all memory of its machine
    return {
        "asked_at": asked_at,
        "versions": installed_versions(),
        "host": socket.gethostname(),
        "status": dask_worker.status.name if dask_worker else "running",
        "threads": dask_worker.state.nthreads if dask_worker else os.cpu_count() or 1,
        "has_nanny": bool(dask_worker and dask_worker.nanny),
        "memory_limit": memory_limit,
        "memory_used": memory_used,
        "cgroup": _cgroup(),
        "cgroup_limit": cgroup_limit,
        "cgroup_used": cgroup_used,
        "shm_free": shutil.disk_usage(_SHM).free if _SHM.is_dir() else None,
        "has_memfd": _can_open(lambda: os.memfd_create("dask-train-doctor")),
        "has_pidfd": _can_open(lambda: os.pidfd_open(os.getpid())),
        "gpus": gpus,
        "gpu_problem": gpu_problem,
        "cuda_visible_devices": os.environ.get("CUDA_VISIBLE_DEVICES"),
        "omp_num_threads": os.environ.get("OMP_NUM_THREADS"),
        "open_files": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        "templates": await tell_templates(dask_worker),
        "answered_at": time.time(),
    }


async def tell_templates(dask_worker: Any = None) -> list[TemplateProbe]:
    """Return the template processes of a Dask worker."""
    plugin = dask_worker.plugins.get("dask-train-templates") if dask_worker else None
    if plugin is None:
        return []
    names, idle_s = plugin.pids(), plugin.idle_s()
    shares = await asyncio.to_thread(lambda: {pid: _share(pid) for pid in names})
    probes: list[TemplateProbe] = [
        {"imports": name, "pid": pid, "memory": shares[pid], "idle_s": idle_s[pid]} for pid, name in names.items()
    ]
    return sorted(probes, key=lambda probe: probe["imports"])


def tell_scheduler(
    installed_versions: Callable[[], dict[str, str]], plugin: str, dask_scheduler: Any = None
) -> tuple[dict[str, str], bool]:
    """Return the versions that the scheduler has, and whether it has the plug-in of that name."""
    return installed_versions(), plugin in dask_scheduler.plugins


async def open_port(host: str, seconds: float) -> int:
    """Listen on a free port for so long, as a TensorFlow server would, and hang up on callers; return the port."""
    address = "::" if ":" in host else "0.0.0.0"  # noqa: S104 - what TensorFlow binds
    server = await asyncio.start_server(lambda _, writer: writer.close(), address, 0)
    asyncio.get_running_loop().call_later(seconds, server.close)
    return int(server.sockets[0].getsockname()[1])


async def reach(host: str, port: int, timeout_s: float) -> str:
    """Connect from here; what went wrong, or ``""``."""
    try:
        async with asyncio.timeout(timeout_s):
            _, writer = await asyncio.open_connection(host, port)
    except TimeoutError:
        return f"no answer within {timeout_s:g} s"
    except OSError as error:
        return str(error)
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
    return ""


def _cgroup() -> str:
    """Return what tells the control groups of one host apart; containers each see theirs at the root."""
    try:
        return f"{os.stat('/proc/self/ns/cgroup').st_ino}\n{Path('/proc/self/cgroup').read_text()}"
    except OSError:
        return ""


def _memory(dask_worker: Any) -> tuple[int | None, int | None]:
    """Limit and use in bytes: those of a Dask worker's process; else those of the machine."""
    limit = dask_worker.memory_manager.memory_limit if dask_worker else None
    try:
        import psutil
    except ImportError:
        return limit, None
    if dask_worker:
        return limit, int(psutil.Process().memory_info().rss)
    machine = psutil.virtual_memory()
    return int(machine.total), int(machine.total - machine.available)


def _share(pid: int) -> int | None:
    """Memory of a process, what it shares with others divided among them (PSS); None if it is unknown."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) << 10
    return None


def _can_open(open_it: Callable[[], int]) -> bool:
    try:
        os.close(open_it())
    except (AttributeError, OSError):  # not this system, or not allowed in this container
        return False
    return True


def _gpus() -> tuple[list[str], str]:
    """Return names, sizes and drivers as nvidia-smi gives them, and why it gives none although it is there."""
    if shutil.which("nvidia-smi") is None:
        return [], ""
    query = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, timeout=NVIDIA_SMI_S, check=False)
    except subprocess.TimeoutExpired:
        return [], f"nvidia-smi gave no answer within {NVIDIA_SMI_S:g} s"
    except OSError as error:
        return [], f"nvidia-smi: {error}"
    if answer.returncode != 0:
        return [], f"nvidia-smi: {' '.join((answer.stdout + answer.stderr).split())[:200]}"
    lines = (line.rpartition(", ") for line in answer.stdout.strip().splitlines())
    return [f"{device}, driver {version}" for device, _, version in lines], ""
