"""Keras without scikit-learn and matplotlib, which it imports for parts that few programs use."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from threading import RLock
from types import ModuleType
from typing import Any

PARTS = frozenset(
    {
        "keras._tf_keras.keras.visualization",
        "keras._tf_keras.keras.wrappers",
        "keras.src.visualization",
        "keras.visualization",
        "keras.wrappers",
    }
)


class _Later(Loader):
    """Runs a module when it is first asked for what it does not have before; other threads wait meanwhile.

    ``importlib.util.LazyLoader`` of Python 3.11 shows other threads a module that is half run.
    """

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        lock = RLock()
        begun: list[bool] = []

        def run_first(name: str) -> Any:
            with lock:
                if not begun:
                    begun.append(True)
                    try:
                        self._loader.exec_module(module)
                    except BaseException:
                        begun.clear()  # the next access tries again
                        raise
                    if vars(module)["__getattr__"] is run_first:
                        del vars(module)["__getattr__"]
            return object.__getattribute__(module, name)

        vars(module)["__getattr__"] = run_first


class _Finder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path, target) if fullname in PARTS else None
        if spec is not None and spec.loader is not None:
            spec.loader = _Later(spec.loader)
        return spec


@contextmanager
def parts_imported_later() -> Iterator[None]:
    """Let Keras, where it is imported inside, import what has scikit-learn and matplotlib when it is first used.

    With both installed they take 2.0 of 7.1 s of CPU time that ``import tensorflow`` takes. Nothing else changes:
    ``keras.wrappers`` and ``keras.visualization`` are there, and have what they have.
    """
    finder = _Finder()
    sys.meta_path = [finder, *sys.meta_path]  # another list: other threads may be looking through the old one
    try:
        yield
    finally:
        sys.meta_path = [other for other in sys.meta_path if other is not finder]
