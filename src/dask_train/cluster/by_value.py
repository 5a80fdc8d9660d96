"""Brings our code to a scheduler, or a Dask worker, that may have no dask-train installed."""

from __future__ import annotations

import threading
import zlib
from contextlib import ExitStack
from types import ModuleType
from typing import Any

import cloudpickle  # type: ignore[import-untyped]

_registering = threading.Lock()  # cloudpickle's list of such modules is one for the process


class ByValue:
    """Pickles as ``content`` with the code of ``modules`` inside, and unpickles to a copy of ``content``.

    The side that unpickles needs cloudpickle, which Dask brings, and what the modules themselves import. A package
    stands for all modules in it. ``zipped`` it takes a quarter of the bytes, and some milliseconds.
    """

    def __init__(self, content: Any, *modules: ModuleType, zipped: bool = False) -> None:
        self._zipped = zipped
        with _registering, ExitStack() as registered:
            for module in modules:
                cloudpickle.register_pickle_by_value(module)
                registered.callback(cloudpickle.unregister_pickle_by_value, module)
            self._pickled = cloudpickle.dumps(content)
            self.__name__ = getattr(content, "__name__", type(content).__name__)  # Dask names tasks after it

    def __reduce__(self) -> tuple[Any, tuple[Any]]:
        return cloudpickle.loads, (_Zipped(self._pickled) if self._zipped else self._pickled,)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call what unpickling gives."""
        return cloudpickle.loads(self._pickled)(*args, **kwargs)


class _Zipped:
    """Pickles as compressed bytes, and unpickles as these bytes were."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def __reduce__(self) -> tuple[Any, tuple[bytes]]:
        return zlib.decompress, (zlib.compress(self._data, 9),)
