"""What a child process of a Dask worker is started with, and starting it anew."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from dask_train.process.devices import read_at_import

# Libraries read their number of threads from these when they are first used. A Dask worker has them at 1, because it
# runs tasks side by side; a role process has its share of the host for itself.
THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "TF_NUM_INTRAOP_THREADS",
)
# How soon malloc gives memory back to the system, mallopt(3): what Dask's nannies set by default.
NANNYS_TRIM = ("MALLOC_TRIM_THRESHOLD_", "65536")
# Lets malloc ask for huge pages, glibc 2.35 and later; others pass it by (docs/design/0017-large-models.md).
_TUNABLES, _HUGE_PAGES = "GLIBC_TUNABLES", "glibc.malloc.hugetlb"


def child_environment(inherited: Mapping[str, str], num_threads: int, path: list[str]) -> dict[str, str]:
    """Return the environment of a child process: its Dask worker's, with its cores and the same import path.

    It keeps freed memory as any process does. Dask's nannies set ``MALLOC_TRIM_THRESHOLD_``, so that Dask workers give
    it back at once; each array of more than 128 KiB is then mapped anew and cleared by the kernel page by page, which
    doubled a training step of torch and JAX (``benchmarks/backends.py``).

    Arrays of more than 32 MiB, such as the gradients of a large layer, are mapped anew at any setting that all versions
    of glibc take. In huge pages that costs 512 times fewer page faults.
    """
    share = dict.fromkeys(THREAD_VARIABLES, str(num_threads))
    environment = {name: value for name, value in inherited.items() if (name, value) != NANNYS_TRIM}
    tunables = environment.get(_TUNABLES, "")
    if _HUGE_PAGES not in tunables:
        environment[_TUNABLES] = ":".join(filter(None, (tunables, f"{_HUGE_PAGES}=1")))
    return {**environment, **share, "PYTHONPATH": os.pathsep.join(entry for entry in path if entry)}


@dataclass(frozen=True, kw_only=True)
class Preload:
    """What a template imports before it is forked.

    Attributes
    ----------
    modules
        Names of modules, in the order in which they are imported.
    environment
        Variables that they read when they are imported, besides those of the Dask worker.
    idle_s
        How long a template stays without being used, in seconds; 0 for no templates.
    """

    modules: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    idle_s: float


@dataclass(frozen=True, kw_only=True)
class Launch:
    """What a child process is started with.

    Attributes
    ----------
    module
        What ``python -m`` would run.
    arguments
        The first of its arguments. Those that follow are the Dask worker's process id, and the numbers that
        :attr:`descriptors` have in the child.
    descriptors
        What the child inherits besides its output; they stay the caller's here.
    output
        The descriptor of its standard output and standard error.
    num_threads
        Its share of the host's cores.
    environment
        Variables that it has besides those of the Dask worker.
    preload
        What a template for it imports; None if it has none.
    """

    module: str
    arguments: tuple[str, ...]
    descriptors: tuple[int, ...]
    output: int
    num_threads: int
    environment: Mapping[str, str] = field(default_factory=dict)
    preload: Preload | None = None

    def with_environment(self, environment: Mapping[str, str]) -> Launch:
        """Return the same with more variables; its template gets those that its modules read when imported."""
        preload = self.preload
        if preload is not None:
            early = read_at_import(environment, preload.modules)
            preload = replace(preload, environment={**preload.environment, **early})
        return replace(self, environment={**self.environment, **environment}, preload=preload)

    def whole_environment(self) -> dict[str, str]:
        """Return all variables of the child."""
        return {**child_environment(os.environ, self.num_threads, sys.path), **self.environment}


class Process(Protocol):
    """A process that this one has started, or a template for it, as :class:`subprocess.Popen` has it."""

    pid: int
    returncode: int | None

    def poll(self) -> int | None:
        """Return how it ended, a signal as a negative number; None while it runs."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; raises :class:`subprocess.TimeoutExpired` after ``timeout`` seconds."""


def spawn(launch: Launch) -> Process:
    """Start the process anew, as a child of the thread that calls.

    Raises
    ------
    OSError
        The system has no room for a process.
    """
    numbers = [os.getpid(), *launch.descriptors]
    return subprocess.Popen(
        [sys.executable, "-P", "-m", launch.module, *launch.arguments, *map(str, numbers)],
        stdin=subprocess.DEVNULL,
        stdout=launch.output,
        stderr=launch.output,
        pass_fds=launch.descriptors,
        env=launch.whole_environment(),
        start_new_session=True,  # a Ctrl-C in the terminal is the client's to handle
    )
