"""Calls a function once a module has been imported, without importing it."""

from __future__ import annotations

import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType


def call_after_import(module: str, then: Callable[[], None]) -> None:
    """Call ``then()`` at once where ``module`` has been imported, else when it is; the same function once."""
    if module in sys.modules:
        then()
        return
    waiting = [finder for finder in sys.meta_path if isinstance(finder, _AfterImport) and finder.module == module]
    if not waiting:
        sys.meta_path.insert(0, _AfterImport(module, then))
    elif then not in waiting[0].calls:
        waiting[0].calls.append(then)


class _AfterImport(MetaPathFinder):
    """Calls functions once a module has been imported; leaves finding and loading to those that do it anyway."""

    def __init__(self, module: str, then: Callable[[], None]) -> None:
        self.module, self.calls = module, [then]

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Find the module as the other finders do, with a loader that calls the functions at its end."""
        if fullname != self.module:
            return None
        others = [finder for finder in sys.meta_path if finder is not self and hasattr(finder, "find_spec")]
        spec = next(filter(None, (finder.find_spec(fullname, path, target) for finder in others)), None)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                load(module)
                for then in self.calls:
                    then()

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
