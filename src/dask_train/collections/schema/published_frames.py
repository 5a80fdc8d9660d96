"""Schemas of data sets that lie in shared memory, where categories are codes: one for each column of the data set."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from dask import delayed
from dask.delayed import Delayed

from dask_train.collections.delayed import are_parts
from dask_train.collections.partition.form import is_frame, picks_of, resolved
from dask_train.collections.schema.conforming import without_missing_codes, without_missing_labels
from dask_train.collections.schema.frame_schema import FrameSchema, names_in, schema_of, structure_of
from dask_train.collections.schema.kinds import column_for
from dask_train.compat.dask import meta_of


def frames_in(what: str, data: Any, features: Any, label: Any) -> tuple[FrameSchema | None, ...]:
    """Describe the frames and columns of frames that a data set is made of; nothing is computed.

    Parameters
    ----------
    what, data, features, label
        As of :func:`dask_train.collections.check_data`.

    Returns
    -------
    tuple
        A schema for each column of the data set, None if it is made of an array. Empty if all are, and of delayed
        partitions, which tell nothing before they are computed.

    Raises
    ------
    TypeError
        A category, or the name of a column beside it, is of a type that JSON can't hold.
    """
    if isinstance(data, list) and any(isinstance(part, Delayed) for part in data):
        return ()
    picks = picks_of(what, features, label)
    if picks is not None:
        meta = meta_of(data)
        several = resolved(what, list(meta.columns if is_frame(meta) else meta), picks["arrays"])
        values = [meta[names if is_frame(meta) and is_matrix else names[0]] for names, is_matrix in several]
    elif isinstance(data, Mapping):
        values = list(data.values())
    else:
        values = list(data) if isinstance(data, tuple | list) else [data]
    schemas = tuple(_schema_of(what, value) for value in values)
    return schemas if any(each is not None for each in schemas) else ()


def _schema_of(what: str, value: Any) -> FrameSchema | None:
    meta = meta_of(value)
    structure = structure_of(meta)
    if not hasattr(meta, "iloc"):
        return None
    if is_frame(meta):
        schema = schema_of(what, meta, structure, ())
    else:
        schema = FrameSchema(columns=(column_for(what, structure, meta.dtype),), features=structure)
    try:
        schema.to_json()  # as it is published once all is computed
    except TypeError:
        if schema.categories:
            raise
        return None  # of numbers with names that JSON can't hold nobody asks
    return schema


def without_missing(what: str, data: Any, features: Any, label: Any) -> Any:
    """Return the same data, after a check that no category is missing, which has no code.

    Of Dask, and of delayed partitions, the check is made in the task. Delayed partitions may have no categories at all:
    nobody would know later which values their codes stand for.

    Raises
    ------
    ValueError
        One is missing, or a delayed partition has categories.
    """
    if are_parts(data):
        task = delayed(partial(_without_categories, what, features, label), pure=False)
        return [task(part) for part in data]
    if isinstance(data, Mapping):
        known = [name for name in data if name != label] if features is None else list(names_in(features))
        data = {name: without_missing_codes(what, each) if name in known else each for name, each in data.items()}
        return {name: without_missing_labels(what, each) if name == label else each for name, each in data.items()}
    if isinstance(data, tuple | list):
        several = [without_missing_codes(what, value) for value in data]
        return several if isinstance(data, list) else tuple(several)
    data = data if label is None else without_missing_labels(what, data, [label])
    return without_missing_codes(what, data, None if features is None else list(names_in(features)))


def _without_categories(what: str, features: Any, label: Any, part: Any) -> Any:
    """Return a delayed partition, of which no column has categories."""
    is_named = is_frame(part) or isinstance(part, Mapping)
    if (features is not None or label is not None) and not is_named:
        return part  # what reads it says that it has no columns
    several = [schema.categories for schema in frames_in(what, part, features, label) if schema is not None]
    if coded := [name for categories in several for name in categories]:
        raise ValueError(
            f"Column {coded[0]!r} of a partition of {what} holds categories. A data set that is published of delayed "
            "partitions does not keep their values, so codes would later be taken for those of other categories. "
            "Publish a Dask frame, dask.dataframe.from_delayed(parts, meta=parts[0].compute().iloc[:0]); or make codes "
            f"of them: frame[{coded[0]!r}].cat.codes."
        )
    return part
