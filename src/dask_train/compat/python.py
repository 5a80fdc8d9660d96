"""Private parts of Python's standard library. Made for Python 3.11."""

from __future__ import annotations

import atexit
from types import ModuleType


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
