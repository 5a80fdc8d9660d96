"""Private parts of Python's standard library. Made for Python 3.11."""

from __future__ import annotations

import atexit
import functools
from multiprocessing import spawn
from types import ModuleType
from typing import Any

# How distributed's nanny calls the process of its Dask worker.
_DASK_WORKER = "Dask Worker process (from Nanny)"


def run_exit_functions() -> None:
    """Call what was registered with ``atexit``, as the interpreter does when it ends.

    Replaces ``atexit._run_exitfuncs``. Without it a process that has to end with ``os._exit`` leaves files unwritten.
    """
    atexit._run_exitfuncs()


def is_imported(module: ModuleType | None) -> bool:
    """Return whether a module of ``sys.modules`` is there, and not just being imported by another thread.

    Replaces ``ModuleSpec._initializing``. Without it names of a module are read that are not there yet.
    """
    spec = getattr(module, "__spec__", None)
    return spec is not None and not getattr(spec, "_initializing", False)


def start_dask_workers_without_main() -> None:
    """Let Dask workers of clusters in this process not import its main program, from now on; again, it does nothing.

    Replaces ``multiprocessing.spawn.get_preparation_data``, for these processes alone. Dask sends what the main program
    has defined by value, as it must to Dask workers on other hosts. Without it each Dask worker imports what the
    program does, TensorFlow for instance, and starts another cluster where the program is not protected by
    ``if __name__ == "__main__":``, which :mod:`multiprocessing` refuses with an error.
    """
    prepare = spawn.get_preparation_data
    if hasattr(prepare, "__wrapped__"):
        return

    @functools.wraps(prepare)
    def without_main(name: str) -> dict[str, Any]:
        preparation_data = prepare(name)
        if name == _DASK_WORKER:
            for key in ("init_main_from_name", "init_main_from_path"):
                preparation_data.pop(key, None)
        return preparation_data

    spawn.get_preparation_data = without_main
