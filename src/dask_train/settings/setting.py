"""One setting of a library: how it is read and set, and its default."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One setting of a library.

    Attributes
    ----------
    read, write
        Return it as it is now; set it.
    default
        The library's own.
    of_thread
        Whether each thread has its own; other settings are those of the whole process.
    is_final
        Given a value and the one before, whether the process can't go back from it. Default: it always can.
    within
        Given a value, a context in which it holds for the thread alone, though the process has one as well. Default:
        there is none.
    """

    read: Callable[[], Any]
    write: Callable[[Any], None]
    default: Any
    of_thread: bool = False
    is_final: Callable[[Any, Any], bool] = lambda *_: False
    within: Callable[[Any], AbstractContextManager[Any]] | None = None
