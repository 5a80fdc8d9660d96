"""Arguments in messages: keywords where Python calls a verb, options where a command was typed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

# The last one counts: of a command an option or operand by argument; None if Python calls. No context variable: what
# Dask's threads raise is read by the user of the command, too.
_callers: list[Mapping[str, str] | None] = [None]


@contextmanager
def spelled(options: Mapping[str, str] | None) -> Iterator[None]:
    """Spell arguments in messages as the options of a command.

    Parameters
    ----------
    options
        Such as ``{"batch_size": "--batch-size", "x": "INPUT"}``; None spells them as Python does.
    """
    _callers.append(options)
    try:
        yield
    finally:
        _callers.pop()


def named(name: str) -> str:
    """Return an argument as the subject of a sentence: ``batch_size``, or ``--batch-size``."""
    options = _callers[-1]
    return name if options is None else options.get(name, name)


def passed(name: str, value: Any = None) -> str:
    """Return an argument as it is passed: ``overwrite=True``, or ``--overwrite``; without a value ``label=``."""
    options = _callers[-1]
    if options is None:
        return f"{name}=" if value is None else f"{name}={value!r}"
    option = options.get(name, f"{name}=")
    return option if value is None or value is True else f"{option} {_as_typed(value)}"


def is_known(name: str) -> bool:
    """Return whether the reader can pass this argument: a command has options for some of them."""
    options = _callers[-1]
    return options is None or name in options


def by_caller(python: str, command: str) -> str:
    """Return the text for a caller in Python, or for one of the command line."""
    return python if _callers[-1] is None else command


def _as_typed(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
