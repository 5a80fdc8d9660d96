"""Arguments that all kinds of files take, checked before any file is looked at."""

from __future__ import annotations

from typing import Any


def check_functions(*, decode: Any, augment: Any, on_error: Any) -> None:
    """Check that functions can be called, and ``on_error`` is one of two words.

    Raises
    ------
    TypeError, ValueError
        It is not so.
    """
    for name, function in (("decode", decode), ("augment", augment)):
        if function is not None and not callable(function):
            raise TypeError(f"{name} is a {type(function).__name__}; pass a function.")
    if on_error not in ("raise", "skip"):
        raise ValueError(f"on_error is {on_error!r}; it is 'raise' or 'skip'.")
