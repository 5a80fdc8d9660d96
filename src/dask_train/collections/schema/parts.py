"""Delayed frames made as a model knows them, in the tasks that have them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dask_train.collections.frames import in_order
from dask_train.collections.partition.form import is_frame
from dask_train.collections.schema.frame_schema import FrameSchema, only_categories

# Makes the conformer of what a model knows, which only the task has.
Like = Callable[[FrameSchema], Any]


def conformed_part(
    like: Like,
    what: str,
    features: Any,
    left_out: Sequence[Any],
    targets: Sequence[Any],
    known: FrameSchema,
    part: Any,
) -> Any:
    """Make the frame of one partition as the model knows it; a dict of columns, too."""
    return _of_part(like(known), what, features, left_out, targets, part)


def shown_by_part(
    like: Like,
    what: str,
    features: Any,
    left_out: Sequence[Any],
    targets: Sequence[Any],
    known: FrameSchema,
    part: Any,
) -> FrameSchema:
    """Return the categories and order of columns that a partition shows, once it is made as the model knows it."""
    conformer = like(known)
    _of_part(conformer, what, features, left_out, targets, part)
    names = known.names
    if features is None and names is None and is_frame(part):
        names = [name for name in part.columns if name not in left_out]
    return replace(only_categories(conformer.schema(None) or known), inputs=names)


def _of_part(
    conformer: Any, what: str, features: Any, left_out: Sequence[Any], targets: Sequence[Any], part: Any
) -> Any:
    if isinstance(part, Mapping):
        return conformer.columns(what, part, features, left_out, targets)
    if not is_frame(part):
        return part
    part, names = conformer.named(what, part, features, left_out)
    if features is None and isinstance(names, list):  # then the order of a frame is that of its features
        part = in_order(part, list(dict.fromkeys([*names, *left_out])))
    return conformer.targets(what, part, targets)
