"""Keras without scikit-learn and matplotlib, which it imports for parts that few programs use."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import LazyLoader
from types import ModuleType

PARTS = frozenset(
    {
        "keras._tf_keras.keras.visualization",
        "keras._tf_keras.keras.wrappers",
        "keras.src.visualization",
        "keras.visualization",
        "keras.wrappers",
    }
)


class _Later(MetaPathFinder):
    """Finds these parts, and lets them run when something of them is first asked for."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        found = PathFinder.find_spec(fullname, path, target) if fullname in PARTS else None
        if found is not None and found.loader is not None:
            found.loader = LazyLoader(found.loader)
        return found


@contextmanager
def parts_imported_later() -> Iterator[None]:
    """Let Keras, where it is imported inside, import what has scikit-learn and matplotlib when it is first used.

    With both installed they take 2.0 of 7.1 s of CPU time that ``import tensorflow`` takes. Nothing else changes:
    ``keras.wrappers`` and ``keras.visualization`` are there, and have what they have.
    """
    finder = _Later()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
