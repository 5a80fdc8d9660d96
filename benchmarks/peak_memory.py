"""The peak memory of a program and all its processes, with every page of shared memory counted once."""

from __future__ import annotations

import re
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

EVERY_S = 0.05
# Between two looks for processes that are new: a walk through all of /proc.
TREE_S = 0.25
_FIELDS = re.compile(r"^(Pss|Pss_Shmem): +(\d+) kB", re.MULTILINE)


def peak_memory(command: list[str], timeout_s: float) -> dict[str, Any]:
    """Run a program to its end, and look at its memory every 50 ms.

    Parameters
    ----------
    command
        The program; what it prints is returned.

    Returns
    -------
    dict
        ``peak_bytes``, which counts all there is; ``pss_bytes``, the peak of the proportional set sizes alone; and the
        program's ``output``.

    Raises
    ------
    RuntimeError
        It failed, or took longer than ``timeout_s``.

    Notes
    -----
    The sum of all processes' PSS counts a page that several of them map once; but a page of a memory file that was put
    there with ``write()`` and that nobody maps is in nobody's PSS, though it takes room: a Dask worker's segments are
    such, until a role maps them. So shared memory is taken from the system as a whole (``Shmem`` of ``/proc/meminfo``,
    which has memory files and ``/dev/shm``, mapped or not), less what was there before; and of the processes only what
    is not shared memory, ``Pss - Pss_Shmem``. Other programs that use shared memory meanwhile would be counted, too.
    """
    before = _shmem_bytes()
    peak = pss_peak = 0
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        program = subprocess.Popen(command, stdout=output, stderr=errors, text=True)
        tree, looked = [psutil.Process(program.pid)], 0.0
        deadline = time.monotonic() + timeout_s
        try:
            while program.poll() is None and time.monotonic() < deadline:
                if time.monotonic() > looked + TREE_S:
                    tree, looked = _tree(program.pid), time.monotonic()
                sizes = [_pss_bytes(process.pid) for process in tree]
                pss = sum(each for each, _ in sizes)
                peak = max(peak, pss - sum(shared for _, shared in sizes) + _shmem_bytes() - before)
                pss_peak = max(pss_peak, pss)
                time.sleep(EVERY_S)
        finally:
            for process in _tree(program.pid) if program.poll() is None else []:
                process.kill()
            code = program.wait()
        output.seek(0)
        errors.seek(0)
        if code:
            raise RuntimeError(f"{' '.join(command)} ended with code {code}: {errors.read()[-2000:]}")
        return {"peak_bytes": peak, "pss_bytes": pss_peak, "output": output.read()}


def _tree(pid: int) -> list[psutil.Process]:
    try:
        program = psutil.Process(pid)
        return [program, *program.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _pss_bytes(pid: int) -> tuple[int, int]:
    """PSS of a process, and what of it is shared memory; 0 of one that has ended."""
    try:
        found = dict(_FIELDS.findall(Path(f"/proc/{pid}/smaps_rollup").read_text()))
    except OSError:
        return 0, 0
    return 1024 * int(found.get("Pss", 0)), 1024 * int(found.get("Pss_Shmem", 0))


def _shmem_bytes() -> int:
    found = re.search(r"^Shmem: +(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
    assert found is not None
    return 1024 * int(found[1])
