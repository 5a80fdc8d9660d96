"""Packages that are there only where they were asked for: what needs a missing one says how to install it."""

from __future__ import annotations

import warnings
from importlib.util import find_spec


def warn_elsewhere(platform: str) -> None:
    """Warn where dask-train was never tried: on all systems but Linux.

    Parameters
    ----------
    platform
        As ``sys.platform``.
    """
    if platform != "linux":
        system = {"darwin": "macOS", "win32": "Windows"}.get(platform, platform)
        warnings.warn(
            f"dask-train runs on Linux, and was not tried on {system}: its processes share memory and wait as Linux "
            "lets them. Use Linux, WSL 2, a container, or a notebook on a cluster.",
            stacklevel=2,
        )


class MissingPackageError(ImportError):
    """A package that is not a part of the installation is needed for what was asked for."""


def install_command(extra: str = "") -> str:
    """Return how to install dask-train, perhaps with an extra such as ``"search"``.

    This is the one place to change when dask-train is on a package index.
    """
    return f"pip install '.[{extra}]' in a clone of dask-train" if extra else "pip install . in a clone of dask-train"


def check_installed(what: str, package: str, command: str) -> None:
    """Check that a package is installed, without importing it.

    Parameters
    ----------
    what
        What needs it, such as ``"dt.search"``.
    package
        The name that is imported.
    command
        How to install it: what :func:`install_command` returns, or ``pip install`` with another package's name.

    Raises
    ------
    MissingPackageError
        It is not installed; the message says how to install it.
    """
    if find_spec(package) is None:
        raise MissingPackageError(f"{what} needs {package}, which is not installed: {command}.")
