"""Packages that are there only where they were asked for: what needs a missing one says how to install it."""

from __future__ import annotations

from importlib.util import find_spec


class MissingPackageError(ImportError):
    """A package that is not a part of the installation is needed for what was asked for."""


def check_installed(what: str, package: str, install: str) -> None:
    """See that a package is installed, without importing it.

    Parameters
    ----------
    what
        What needs it, such as ``"dt.search"``.
    package
        The name that is imported.
    install
        What ``pip install`` takes: an extra such as ``"dask-train[search]"``, or another package's name.

    Raises
    ------
    MissingPackageError
        It is not installed; the message says how to install it.
    """
    if find_spec(package) is None:
        quoted = f"'{install}'" if "[" in install else install  # brackets mean something to shells
        raise MissingPackageError(f"{what} needs {package}, which is not installed: pip install {quoted}.")
