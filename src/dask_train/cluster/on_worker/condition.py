"""What one process of a cluster tells about itself and its machine, and whether a port there can be reached.

Everything here travels by value (``dask_train.cluster.extension.ByValue``) to Dask workers that may lack dask-train, so
it imports the standard library alone. Nothing here loads a framework, and nothing keeps an event loop waiting.
"""

from __future__ import annotations

import asyncio
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

# How cgroup v1 writes "no limit": the largest multiple of a page.
_NO_LIMIT = 2**60


_SHM = Path("/dev/shm")  # noqa: S108 - asked for its size


class Condition(TypedDict):
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


async def tell(installed_versions: Callable[[], dict[str, str]], dask_worker: Any = None) -> Condition:
    """The condition of this process: a Dask worker, or a client where there is none."""
    asked_at = time.time()
    gpus, gpu_problem = await asyncio.to_thread(_gpus)
    cgroup_limit, cgroup_used = _cgroup_memory(Path("/proc/self/cgroup"), Path("/sys/fs/cgroup"))
    return {
        "asked_at": asked_at,
        "versions": installed_versions(),
        "host": socket.gethostname(),
        "status": dask_worker.status.name if dask_worker else "running",
        "threads": dask_worker.state.nthreads if dask_worker else os.cpu_count() or 1,
        "has_nanny": bool(dask_worker and dask_worker.nanny),
        "memory_limit": dask_worker.memory_manager.memory_limit if dask_worker else None,
        "memory_used": _memory_used(),
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
        "answered_at": time.time(),
    }


def tell_scheduler(
    installed_versions: Callable[[], dict[str, str]], plugin: str, dask_scheduler: Any = None
) -> tuple[dict[str, str], bool]:
    """The versions that the scheduler has, and whether it has the plug-in of that name."""
    return installed_versions(), plugin in dask_scheduler.plugins


async def open_port(host: str, seconds: float) -> int:
    """Listen on a free port for so long, as a TensorFlow server would, and hang up on whoever calls; the port."""
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


def _memory_used() -> int | None:
    try:
        import psutil
    except ImportError:
        return None
    return int(psutil.Process().memory_info().rss)


def _can_open(open_it: Callable[[], int]) -> bool:
    try:
        os.close(open_it())
    except (AttributeError, OSError):  # not this system, or not allowed in this container
        return False
    return True


def _gpus() -> tuple[list[str], str]:
    """Names and sizes as nvidia-smi gives them, and why it gives none although it is there."""
    if shutil.which("nvidia-smi") is None:
        return [], ""
    query = ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, timeout=NVIDIA_SMI_S, check=False)
    except subprocess.TimeoutExpired:
        return [], f"nvidia-smi gave no answer within {NVIDIA_SMI_S:g} s"
    except OSError as error:
        return [], f"nvidia-smi: {error}"
    if answer.returncode != 0:
        return [], f"nvidia-smi: {' '.join((answer.stdout + answer.stderr).split())[:200]}"
    return answer.stdout.strip().splitlines(), ""


def _cgroup_memory(membership: Path, root: Path) -> tuple[int | None, int | None]:
    """Limit and use of this process's control group, of either version.

    A container sees its own group at the root, whatever path it is told:
    https://man7.org/linux/man-pages/man7/cgroup_namespaces.7.html
    """
    lines = membership.read_text().splitlines() if membership.exists() else []
    for line in lines:
        number, controllers, path = line.split(":", 2)
        if number == "0":
            base, names = root, ("memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            base, names = root / "memory", ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        else:
            continue
        for folder in (base / path.lstrip("/"), base):
            if (folder / names[0]).exists():
                return _bytes(folder / names[0]), _in_use(folder, names[1], names[2])
    return None, None


def _in_use(folder: Path, used: str, cache: str) -> int | None:
    """Without files that are only cached, which the system drops where memory is short; as Kubernetes counts."""
    total = _bytes(folder / used)
    with suppress(OSError, ValueError):
        stat = dict(line.split(" ", 1) for line in (folder / "memory.stat").read_text().splitlines())
        return max(0, (total or 0) - int(stat.get(cache, 0))) if total is not None else None
    return total


def _bytes(file: Path) -> int | None:
    try:
        text = file.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() and int(text) < _NO_LIMIT else None
