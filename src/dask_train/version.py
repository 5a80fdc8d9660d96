"""The version of this package, what both ends of a run must agree on: its build takes it from the tag in git."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("dask-train")
except PackageNotFoundError:  # the source is on the path, and nothing is installed
    __version__ = "unknown"
