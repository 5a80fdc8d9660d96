"""The kinds of column that a schema knows; a new kind is a file next to these, and a line here.

How tasks read a dtype is decided in :mod:`dask_train.collections.partition.kinds`, which has to take it as well.
"""

from __future__ import annotations

from typing import Any

from dask_train.collections.schema.category import CategoryColumn
from dask_train.collections.schema.column import FrameColumn
from dask_train.collections.schema.plain import NumberColumn, OtherColumn, TextColumn
from dask_train.collections.schema.values import value_from_json

# Asked in this order which of them has columns of a dtype; the last one has all.
KINDS: tuple[type[FrameColumn], ...] = (CategoryColumn, NumberColumn, TextColumn, OtherColumn)


def column_for(what: str, name: Any, dtype: Any) -> FrameColumn:
    """Describe a column of a frame by its dtype.

    Raises
    ------
    ValueError
        The frame does not know its categories yet.
    """
    kind = next(kind for kind in KINDS if kind.has(dtype))
    return kind.of(what, name, dtype)


def column_from_json(content: dict[str, Any]) -> FrameColumn:
    """Return the column that :meth:`FrameColumn.to_json` has written.

    Raises
    ------
    ValueError
        This version knows no such kind.
    """
    settings = {**content}
    name, kind = value_from_json(settings.pop("name")), settings.pop("kind")
    known = {each.kind: each for each in KINDS}
    if kind not in known:
        raise ValueError(
            f"The schema has a column {name!r} of kind {kind!r}, and this version of dask-train knows "
            f"{', '.join(known)}. It was written by a later version: upgrade dask-train."
        )
    return known[kind].from_settings(name, settings)
