"""Functions of a library's module that are others meanwhile, in one thread: fits of several threads have their own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any

# Of names in modules: what is put there, and taken away.
_changes = threading.Lock()


class _Instead(threading.local):
    """What a thread calls in place of functions, by module and name."""

    def __init__(self) -> None:
        self.functions: Mapping[str, Mapping[str, Callable[..., Any]]] = {}


_instead = _Instead()


class _PerThread:
    """Stands in a module in place of a function, and calls what the calling thread has for it, or the function itself.

    Parameters
    ----------
    module, name
        Where.
    original
        The function.
    """

    def __init__(self, module: ModuleType, name: str, original: Callable[..., Any]) -> None:
        self._module, self._name, self.original = module.__name__, name, original
        self.num_uses = 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call it; what a replacement calls, such as a fit of the library in a callback, is not replaced."""
        before = _instead.functions
        function = before.get(self._module, {}).get(self._name)
        if function is None:
            return self.original(*args, **kwargs)
        _instead.functions = {**before, self._module: {}}
        try:
            return function(*args, **kwargs)
        finally:
            _instead.functions = before


@contextmanager
def replaced_in_thread(module: ModuleType, **functions: Callable[..., Any]) -> Iterator[None]:
    """Let this thread call other functions than those of a module meanwhile; all other threads call those.

    Nobody waits for another thread, as its callbacks may wait for this one.
    """
    before = _instead.functions
    with _changes:
        used = {name: _put(module, name) for name in functions}
    _instead.functions = {**before, module.__name__: functions}
    try:
        yield
    finally:
        _instead.functions = before
        with _changes:
            for name, each in used.items():
                each.num_uses -= 1
                if not each.num_uses and getattr(module, name) is each:
                    setattr(module, name, each.original)


def _put(module: ModuleType, name: str) -> _PerThread:
    """Return what stands in place of the function, once more in use; it is put there unless another thread has."""
    there = getattr(module, name)
    if not isinstance(there, _PerThread):
        there = _PerThread(module, name, there)
        setattr(module, name, there)
    there.num_uses += 1
    return there
