"""Categories of which a model takes codes, where nobody knows those that it was fitted with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dask_train.collections.partition.form import is_frame
from dask_train.collections.schema.category import CategoryColumn
from dask_train.collections.schema.frame_schema import names_in
from dask_train.compat.dask import meta_of


def check_no_categories(what: str, x: Any, features: Any, others: Sequence[Any]) -> None:
    """Check that a model which takes codes, and of which no schema is known, gets no categories.

    Raises
    ------
    ValueError
        A column of a frame has some.
    """
    meta = meta_of(x)
    if not hasattr(meta, "iloc"):
        return
    dtypes = dict(meta.dtypes) if is_frame(meta) else {meta.name: meta.dtype}
    names = [name for name in dtypes if name not in others] if features is None else list(names_in(features))
    for name in names:
        if name in dtypes and CategoryColumn.has(dtypes[name]):
            raise unknown_categories(what, name)


def unknown_categories(what: str, name: Any) -> ValueError:
    """Return the error of a column of categories for a model whose learnt categories are unknown."""
    return ValueError(
        f"Column {name!r} of {what} holds categories, of which the model takes codes, and the categories that it was "
        "fitted with are not known here: the same codes would mean other values. Pass schema=result.schema of its fit, "
        "or the path of what result.save has written; or, for a model of another origin, "
        "schema=dt.FrameSchema.of(frame) of the frame that it was fitted with."
    )
