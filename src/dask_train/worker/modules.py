"""Which modules a Dask worker lacks. Travels by value, because dask-train may be what is missing."""

from __future__ import annotations


def missing_modules(names: list[str]) -> list[str]:
    """Names of those modules whose package can't be found; nothing is imported."""
    import importlib.util

    missing = []
    for name in names:
        try:
            found = importlib.util.find_spec(name.partition(".")[0]) is not None
        except (ImportError, ValueError):
            found = False
        if not found:
            missing.append(name)
    return missing
