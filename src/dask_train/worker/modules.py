"""Which modules a Dask worker lacks or has in another version. Travels by value: dask-train may be what is missing."""

from __future__ import annotations


def missing_modules(names: list[str]) -> list[str]:
    """Return the names of those modules whose package can't be found; nothing is imported."""
    import importlib.util

    missing = []
    for name in names:
        try:
            is_installed = importlib.util.find_spec(name.partition(".")[0]) is not None
        except (ImportError, ValueError):
            is_installed = False
        if not is_installed:
            missing.append(name)
    return missing


def other_modules(python: tuple[int, int], digests: dict[str, str]) -> list[str]:
    """Return the names of those modules whose files hold other code here.

    Digests are of :func:`dask_train.identity.sources.file_digests`. There are no names where the version of Python is
    another one, or dask-train is missing; these are reported elsewhere.
    """
    import sys

    try:
        from dask_train.identity.sources import file_digests
    except ImportError:
        return []
    own = file_digests(digests) if sys.version_info[:2] == tuple(python) else {}
    return [name for name in digests if own.get(name, digests[name]) != digests[name]]
