"""A fork of a template becomes what a new process would be: its own environment, output, threads, random numbers."""

from __future__ import annotations

import ctypes
import faulthandler
import importlib
import os
import runpy
import socket
import sys
import traceback
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from dask_train.process.life import STACKS_SIGNAL
from dask_train.process.template import Birth

# What sets the number of threads in libraries that have read their environment, by a part of the file's name.
_THREAD_SETTERS = {
    "openblas": [
        f"{prefix}openblas_set_num_threads{suffix}" for prefix in ("", "scipy_") for suffix in ("", "64_", "_64")
    ],
    "libmkl_rt": ["MKL_Set_Num_Threads"],
    "libblis": ["bli_thread_set_num_threads"],
    "libgomp": ["omp_set_num_threads"],
    "libiomp": ["omp_set_num_threads"],
    "libomp": ["omp_set_num_threads"],
}


def become(birth: Birth, stacks: int) -> NoReturn:
    """Run what the order says; never returns."""
    order, (leave, output, *own) = birth.order, birth.descriptors
    status = 0
    try:
        _ask_leave(leave)
        _take_output(output, birth.printed)
        faulthandler.unregister(STACKS_SIGNAL)  # its template's; no one asks for stacks until it has its own
        os.close(stacks)
        arguments = [*order.arguments, str(os.getppid()), *map(str, own)]
        show_arguments([sys.executable, "-P", "-m", order.module, *arguments])
        os.environ.clear()
        os.environ.update(order.environment)
        sys.path[:] = dict.fromkeys([*order.path, *sys.path])
        set_num_threads(order.num_threads)
        draw_anew()
        importlib.invalidate_caches()
        sys.argv = ["-m", *arguments]
        runpy.run_module(order.module, run_name="__main__", alter_sys=True)
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        traceback.print_exc()
        status = 1
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)


def _ask_leave(end: int) -> None:
    """Report this process's number to the Dask worker; continue if it still wants it: it may have spawned another."""
    with socket.socket(fileno=end) as asking:
        asking.sendall(str(os.getpid()).encode())
        if not asking.recv(1):
            os._exit(1)


def _take_output(output: int, printed: bytes) -> None:
    """Write to it from now on, and first what the imports have printed, which a new process's would have, too."""
    for descriptor in (1, 2):
        os.dup2(output, descriptor)
    os.close(output)
    while printed:
        printed = printed[os.write(2, printed) :]


def show_arguments(arguments: list[str]) -> None:
    """Let ``ps`` show these instead of the template's, as far as there is room."""
    with suppress(OSError, ValueError):
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        start, end = int(fields[45]), int(fields[46])  # arg_start and arg_end: proc_pid_stat(5), fields 48 and 49
        text = b"\0".join(map(os.fsencode, arguments))[: end - start - 1]
        ctypes.memmove(start, text.ljust(end - start, b"\0"), end - start)


def set_num_threads(num_threads: int) -> None:
    """Size the pools of libraries that are loaded; those that are not yet read the environment."""
    for path, setters in _loaded():
        library = ctypes.CDLL(path)
        for setter in setters:
            if (function := getattr(library, setter, None)) is not None:
                function(ctypes.c_int(num_threads))


def _loaded() -> Iterator[tuple[str, list[str]]]:
    """Files of libraries with a pool of threads, and what sets its size there."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    for path in sorted({line.split(maxsplit=5)[5] for line in lines if line.count("/")}):
        for part, setters in _THREAD_SETTERS.items():
            if part in os.path.basename(path):
                yield path, setters


def draw_anew() -> None:
    """Let no two forks of a template draw the same random numbers; Python's own module sees to itself."""
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()
    if "torch" in sys.modules:
        sys.modules["torch"].default_generator.seed()
