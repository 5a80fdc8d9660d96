"""Schemas that models of this process were fitted with, and those that users pass."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

from dask_train.collections.schema.column import FrameColumn
from dask_train.collections.schema.frame_schema import FrameSchema, only_categories, schema_at
from dask_train.collections.schema.plain import NumberColumn
from dask_train.stores import is_url

# A model that is saved by its framework, or sent elsewhere, leaves its schema behind; what result.save writes has it.
_OF_MODELS: WeakKeyDictionary[Any, FrameSchema] = WeakKeyDictionary()


def note_schema(model: Any, schema: FrameSchema | None) -> None:
    """Remember what a model has been fitted with, for as long as it lives."""
    if schema is not None:
        with suppress(TypeError):  # an estimator of the user's without a hash, or that takes no weak references
            _OF_MODELS[model] = schema


def schema_for(model: Any, schema: Any = None, options: Mapping[str, Any] | None = None) -> FrameSchema | None:
    """Return the schema of a model: that which was passed, else that which it was fitted with in this process, or has.

    Parameters
    ----------
    model
        Of any kind.
    schema
        A :class:`~dask_train.FrameSchema`, or the path of a file that has one.
    options
        ``storage_options`` for that file.

    Raises
    ------
    TypeError, ValueError
        It is no schema, or can't be read.
    """
    if isinstance(schema, str | os.PathLike):
        return schema_at("schema", schema, options)
    if schema is not None and not isinstance(schema, FrameSchema):
        raise TypeError(
            f"schema is a {type(schema).__name__}. Pass result.schema, dt.FrameSchema.of(frame), or the path of what "
            "result.save has written."
        )
    if schema is not None:
        return schema
    try:
        noted = _OF_MODELS.get(model)
    except TypeError:  # what has no hash, or takes no weak references
        noted = None
    own = getattr(model, "schema_", None)  # of dask_train.linear_model
    return own if noted is None and isinstance(own, FrameSchema) else noted


def learnt_for(model: Any, schema: Any = None) -> FrameSchema | None:
    """Return what further training of a model has to keep, or the whole schema that was passed.

    That are categories, and the order of columns where the names are the same.
    """
    try:
        known = schema_for(model, schema)
    except ValueError as error:
        if isinstance(schema, str) and is_url(schema):  # training takes no storage_options
            error.add_note(
                "To read it with other credentials, pass dt.FrameSchema.load(url, storage_options=...) as schema=."
            )
        raise
    if known is None or schema is not None:
        return known
    kept = only_categories(known)
    # Of several columns of one name only their order tells which is which.
    return replace(
        kept,
        columns=kept.columns if _differ_in_name(known.columns) else known.columns,
        targets=kept.targets if _differ_in_name(known.targets) else known.targets,
        inputs=known.names,
        outputs=known.target_names,
    )


def _differ_in_name(columns: Sequence[FrameColumn]) -> bool:
    return len({column.name for column in columns}) == len(columns)


def row_of_zeros(schema: FrameSchema) -> Any:
    """Return a frame of pandas with the features of one row, all 0; None unless these are a list of numbers."""
    import pandas as pd

    columns = {one.name: one for one in schema.columns}
    names = list(columns) if schema.features is None else schema.features
    if not isinstance(names, list | tuple):
        return None
    numbers = [one for one in map(columns.get, names) if isinstance(one, NumberColumn)]
    if not numbers or len(numbers) < len(names):
        return None
    return pd.DataFrame({one.name: pd.Series([0], dtype=one.dtype) for one in numbers})
