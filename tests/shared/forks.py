"""Processes of tests that need not import Dask: forks of one that has.

A new process takes a second of a core for that, and tests start hundreds. Dask workers of clusters in the process that
runs tests are such forks, and so are commands. Programs that tests start have Dask's default, as users do.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from multiprocessing import forkserver
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest import mock

import dask
from dask.__main__ import main
from distributed.utils import get_mp_context

# Dask's own list has pandas, too, and so each Dask worker would take more memory than a new one.
IMPORTED = ["distributed", "dask.array", "dask_train.worker.agent"]
# The variables of all forks: what Dask sets for new processes, and those of this process as it begins.
VARIABLES = {name: str(value) for name, value in dask.config.get("distributed.nanny.pre-spawn-environ").items()}


def let_dask_fork() -> None:
    """Let Dask workers of clusters in this process be forks, from now on."""
    VARIABLES.update(os.environ)
    dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"})
    get_mp_context()  # it sets its own list, once
    multiprocessing.set_forkserver_preload(IMPORTED)


def ensure_running() -> None:
    """Start the process that forks, which stays until the end, whatever a test has set in this one."""
    with mock.patch.dict(os.environ, VARIABLES, clear=True):
        forkserver.ensure_running()


def run_forked(
    words: Sequence[str], folder: Path, environment: Mapping[str, str], timeout_s: float = 60.0
) -> subprocess.CompletedProcess[str]:
    """Run ``dask`` with these words to its end, as a shell in this folder would; it is killed after the time."""
    ensure_running()
    with TemporaryDirectory() as there:
        files = [Path(there, name) for name in ("output", "errors")]
        process = multiprocessing.get_context("forkserver").Process(
            target=_become, args=(list(words), str(folder), dict(environment), list(map(str, files)))
        )
        process.start()
        process.join(timeout_s)
        exit_code = process.exitcode
        if exit_code is None:
            process.kill()
            process.join()
        output, errors = (file.read_text() for file in files)
    process.close()
    if exit_code is None:
        raise subprocess.TimeoutExpired(list(words), timeout_s, output, errors)
    return subprocess.CompletedProcess(list(words), exit_code, output, errors)


def _become(words: list[str], folder: str, environment: dict[str, str], files: list[str]) -> None:
    """Become ``python -m dask``, which would begin with nothing imported."""
    for number, path in enumerate(files, start=1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), number)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["dask", *words]
    sys.path.insert(0, folder)
    dask.config.refresh()  # it was imported with other variables
    main()
