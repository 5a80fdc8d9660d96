"""Whether training resumes as it was begun: what differs between two configurations, in words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dask_train.errors import CheckpointError

# How many differences a message names.
_NAMED = 6


def check_same(then: Any, now: Any) -> None:
    """Check that training resumes with what it was begun with.

    Raises
    ------
    CheckpointError
        It does not; the message says what differs.
    """
    if differences := changes(then, now):
        raise CheckpointError(
            f"The checkpoint was begun with something else: {differences}.",
            "Going on with it would give neither the one model nor the other.",
            "Pass the model, data and arguments of then, or checkpoint= another folder to begin anew.",
        )


def changes(then: Any, now: Any) -> str:
    """Return what differs between two configurations, as text; ``""`` if nothing does."""
    differences = list(_differences(then, now, ""))
    more = f"; and {len(differences) - _NAMED} more" if len(differences) > _NAMED else ""
    return "; ".join(differences[:_NAMED]) + more


def _differences(then: Any, now: Any, where: str) -> Iterator[str]:
    if isinstance(then, dict) and isinstance(now, dict):
        for name in [*then, *(name for name in now if name not in then)]:
            yield from _differences(then.get(name), now.get(name), f"{where}.{name}" if where else name)
    elif isinstance(then, list) and isinstance(now, list) and len(then) == len(now):
        for place, (one, other) in enumerate(zip(then, now, strict=True)):
            yield from _differences(one, other, f"{where}[{place}]")
    elif then != now:
        yield f"{where} was {_short(then)}, and is {_short(now)}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:97]}..."
