"""Values of options that are lists and pairs: ``a,b`` and ``a=1,b=2``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click


def names(context: click.Context, parameter: click.Parameter, text: str | None) -> list[str] | None:
    """Read ``a,b`` as a list; None if the option is not given.

    Raises
    ------
    click.BadParameter
        A name is empty.
    """
    if text is None:
        return None
    listed_names = [name.strip() for name in text.split(",")]
    if not all(listed_names):
        raise click.BadParameter(f"{text!r} is not like NAME,NAME.", context, parameter)
    return listed_names


def pairs(context: click.Context, parameter: click.Parameter, values: str | Sequence[str] | None) -> dict[str, str]:
    """Read ``a=1,b=2``, or several ``a=1``, as a dict.

    Raises
    ------
    click.BadParameter
        A part is not like that, or a name stands twice.
    """
    texts = [values] if isinstance(values, str) else list(values or ())
    values_by_name: dict[str, str] = {}
    for text in (part.strip() for whole in texts for part in whole.split(",")):
        name, equals, value = text.partition("=")
        if not (name and equals and value) or name in values_by_name:
            raise click.BadParameter(f"{text!r} is not like NAME=VALUE, with each name once.", context, parameter)
        values_by_name[name] = value
    return values_by_name


def numbers(kind: type[int] | type[float], *, least: int | None = None) -> Callable[..., dict[str, Any]]:
    """Return what reads ``a=1,b=2`` as numbers of a kind, each at least ``least``."""

    def read(context: click.Context, parameter: click.Parameter, passed: Any) -> dict[str, Any]:
        texts_by_name, values = pairs(context, parameter, passed), dict[str, Any]()
        for name, text in texts_by_name.items():
            try:
                values[name] = kind(text)
            except ValueError as error:
                what = "a whole number" if kind is int else "a number"
                raise click.BadParameter(f"{name}={text} is not {what}.", context, parameter) from error
            if least is not None and values[name] < least:
                raise click.BadParameter(f"{name}={text} is below {least}.", context, parameter)
        return values

    return read
