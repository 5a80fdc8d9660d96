"""Private parts of Dask's collections and dispatches. Made for Dask 2026.3 to 2026.8."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def has_meta(value: Any) -> bool:
    """Return whether a value is a collection with an empty sample: a Dask array, frame, column or index.

    Replaces ``_meta``, which Dask documents and keeps private. Without it no collection is known as one.
    """
    return hasattr(value, "_meta")


def meta_of(value: Any) -> Any:
    """Return a collection's empty sample of NumPy or pandas; another value as it is.

    Replaces ``_meta``. Without it dtypes and columns of a collection are known only after rows were computed.
    """
    return getattr(value, "_meta", value)


def sample_of(frame: Any) -> Any:
    """Return a frame of pandas with two made-up rows and the columns of a Dask frame.

    Replaces ``_meta_nonempty``. Without it functions that need rows can't be tried before rows are computed.
    """
    return frame._meta_nonempty


def are_co_aligned(frames: Sequence[Any]) -> bool:
    """Return whether Dask frames are made partition by partition of one frame, so that their rows belong together.

    Replaces ``are_co_aligned`` of the private module of expressions. Without it only equal divisions tell that.
    """
    from dask.dataframe.dask_expr._expr import are_co_aligned

    return bool(are_co_aligned(*(frame.expr for frame in frames)))


def is_expression(value: Any) -> bool:
    """Return whether a value is an expression that Dask frames are made of."""
    return hasattr(value, "_parameters")


def parameters_of(expression: Any) -> list[str]:
    """Return names of an expression's operands; unnamed ones follow them.

    Replaces ``_parameters``. Without it the same files read twice would be taken for other data, since Dask fills some
    operands in as it goes.
    """
    return list(expression._parameters)


def forget_types(dispatch: Any, parent: type) -> None:
    """Drop what a dispatch of Dask has for a class and its subclasses: what others registered, what it remembered.

    Replaces entries of ``_lookup``. Without it, classes that were sent before ours was registered travel as they did.
    """
    for cls in [known for known in dispatch._lookup if isinstance(known, type) and issubclass(known, parent)]:
        del dispatch._lookup[cls]
