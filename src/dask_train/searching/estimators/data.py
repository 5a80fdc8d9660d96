"""What a search over estimators is given for features, targets, weights and groups, as a data set in shared memory."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import dask
import numpy as np

from dask_train.collections.ids import exact_ids
from dask_train.collections.partition.form import is_frame, is_name, picks_of, resolved
from dask_train.collections.schema.conformer import Conformer
from dask_train.collections.schema.frame_schema import FrameSchema
from dask_train.compat.dask import meta_of
from dask_train.data.columns import UNKNOWN, Column, Columns, SourceColumn
from dask_train.inputs.data import InputData
from dask_train.inputs.making import input_data
from dask_train.searching.estimators.folds import Folds
from dask_train.searching.estimators.missing_text import marked
from dask_train.searching.estimators.rows import decoded
from dask_train.shared_data.segments import SharedSegments

if TYPE_CHECKING:
    from dask_train.cluster.clients import Client


def estimator_data(
    what: str,
    x: Any,
    y: Any,
    features: Any,
    label: Any,
    *,
    sample_weight: Any = None,
    groups: Any = None,
    known: FrameSchema | None = None,
) -> InputData:
    """Return features and what goes with them; a frame stays one, with its names and types.

    Parameters
    ----------
    known
        The schema of the frame that estimators are fitted with. Default: this is that frame.

    Raises
    ------
    ValueError, TypeError
        They can't be.
    """
    if label is not None and not (is_frame(x) and y is None):
        raise ValueError("label= names a column of a frame; pass y for arrays.")
    if not is_name(label):
        raise ValueError(f"label={label!r}: an estimator's target is one column of the frame. Pass its name.")
    named = {"label": label, "sample_weight": sample_weight, "groups": groups}
    named = {argument: name for argument, name in named.items() if name is not None and is_name(name)}
    x, own, schema = _columns_of(what, x, features, named, known)
    y = own.get("label", _plain(y))
    weight, groups = (
        own.get(name, _plain(each)) for name, each in (("sample_weight", sample_weight), ("groups", groups))
    )
    for name, each in (("sample_weight", weight), ("groups", groups)):
        if each is not None and getattr(each, "ndim", 1) != 1:
            raise ValueError(f"{name} of {what} has {each.ndim} dimensions; it has one, a value for each row.")
    _check_known("y", y)
    rows = {column: marked(what, each) for column, each in x.items()} if isinstance(x, dict) else x
    data = input_data(what, rows, y, weight, like=Conformer(None, coded=False))
    if not isinstance(x, dict) and not isinstance(data.columns.features, int):
        raise TypeError(f"{what}: an estimator takes one array or frame of features, not several arrays.")
    columns = data.columns
    origins = {number: _origin(x[name]) for name, number in columns.features.items()} if isinstance(x, dict) else {}
    if isinstance(columns.labels, int):
        origins[columns.labels] = _origin(y)
    data = replace(data, columns=columns.with_origins(origins), schema=schema)
    return data if groups is None else _with_groups(what, data, groups)


def _origin(column: Any) -> tuple[SourceColumn, ...]:
    """Return what a column of a frame is; nothing of an array."""
    meta = meta_of(column)
    return (SourceColumn(name=meta.name, dtype=meta.dtype),) if hasattr(meta, "iloc") and meta.ndim == 1 else ()


def _columns_of(
    what: str, x: Any, features: Any, named: dict[str, Any], known: FrameSchema | None
) -> tuple[Any, dict[str, Any], FrameSchema | None]:
    """Return a frame's features as columns, its other columns, and its schema; anything else as it is."""
    if not (is_frame(x) and hasattr(x, "columns")):
        if features is not None:
            raise ValueError("features= names columns of a frame, and x is none. Leave it out.")
        for argument, name in named.items():
            raise ValueError(f"{argument}={name!r} names a column of a frame, and x is none. Pass an array.")
        return x, {}, None
    picks_of(what, features, named.get("label"))  # refuses a label among the features
    wanted = None if features is None else [features] if is_name(features) else list(features)
    resolved(what, list(x.columns), [wanted, *named.values()])
    like = Conformer(known, coded=False)
    x, chosen = like.named(what, x, wanted, list(named.values()))
    schema = like.schema(chosen)
    return {name: x[name] for name in chosen}, {argument: x[name] for argument, name in named.items()}, schema


def _with_groups(what: str, data: InputData, groups: Any) -> InputData:
    """Add the groups as a column, so that they are of the very rows, in whatever order a collection comes."""
    if not isinstance(data.value, tuple):
        raise ValueError(
            f"{what} lies in shared memory already, and groups= is none of its columns. Pass cv= pairs of row numbers, "
            "such as list(GroupKFold().split(rows, groups=groups))."
        )
    _check_known("groups", groups)
    column = Column(dtype=UNKNOWN, row_shape=(), origins=_origin(groups))
    columns = replace(data.columns, columns=(*data.columns, column), groups=len(data.columns))
    return replace(data, value=(*data.value, exact_ids(what, groups)), columns=columns, opened=None)


def _plain(value: Any) -> Any:
    return np.asarray(value) if isinstance(value, list | tuple) else value


def folds_of(cv: Any, segments: SharedSegments, columns: Columns, client: Client) -> Folds:
    """Return the folds of a data set; its targets and groups come to this process for that, its features do not."""
    columns = columns.with_rows(segments.schema)
    y, groups = (
        None if number is None else decoded(what, _values(segments, number, client), columns[number])
        for what, number in (("y", columns.labels), ("groups", columns.groups))
    )
    features = columns.features
    row_shape = (len(features),) if isinstance(features, dict) else columns[features].row_shape
    return Folds(cv, segments.num_rows, row_shape, y, groups)


def _values(segments: SharedSegments, number: int, client: Client) -> np.ndarray:
    """Return all values of a column, in this process."""
    values: np.ndarray = client.compute(segments.array(number)).result()
    return values


def _check_known(what: str, values: Any) -> None:
    """Check that the categories of values are known, where they are categories.

    Raises
    ------
    ValueError
        They are not.
    """
    if (
        hasattr(getattr(values, "dtype", None), "categories")
        and dask.is_dask_collection(values)
        and not values.cat.known
    ):
        raise ValueError(
            f"The categories of {what} are not known yet. Make them known: {what} = {what}.cat.as_known()."
        )
