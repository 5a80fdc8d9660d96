"""Modules of the user's folders: first on the import path, and sent to the cluster whole."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import ModuleType


@contextmanager
def local_modules_travel(*folders: str) -> Iterator[None]:
    """Let modules be imported from folders, and be pickled by value: the Dask workers may lack them.

    Parameters
    ----------
    *folders
        Paths, the first one first on the import path. Modules of theirs that are imported later travel as well.
    """
    import cloudpickle  # type: ignore[import-untyped]

    before = list(sys.path)
    sys.path[:0] = folders
    try:
        with ExitStack() as registered:
            for name in {name for folder in folders for name in _names_in(Path(folder).resolve())}:
                with _loaded(name) as module:
                    cloudpickle.register_pickle_by_value(module)
                registered.callback(cloudpickle.unregister_pickle_by_value, module)
            yield
    finally:
        sys.path[:] = before


@contextmanager
def _loaded(name: str) -> Iterator[ModuleType]:
    """Give a module to cloudpickle, which keeps its name alone, but refuses modules that are not loaded yet."""
    if name in sys.modules:
        yield sys.modules[name]
        return
    sys.modules[name] = ModuleType(name)
    try:
        yield sys.modules[name]
    finally:
        del sys.modules[name]


def _names_in(folder: Path) -> Iterator[str]:
    """Yield the modules and packages that an import finds in a folder, and not elsewhere."""
    for entry in folder.iterdir() if folder.is_dir() else ():
        name = entry.stem if entry.suffix == ".py" else entry.name
        if name.isidentifier() and name not in ("__main__", "dask_train") and _lies_in(folder, name):
            yield name


def _lies_in(folder: Path, name: str) -> bool:
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):  # such as one that is loaded and has no spec
        return False
    if spec is None:
        return False
    places = [*(spec.submodule_search_locations or ())] or [spec.origin or ""]
    return any(place and Path(place).resolve().parent == folder for place in places)
