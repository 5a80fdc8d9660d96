"""What a search over estimators is given for features, targets, weights and groups, as a data set in shared memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import dask
import numpy as np

from dask_train.collections.ids import exact_ids
from dask_train.collections.partition.form import is_frame, is_name, picks_of, resolved
from dask_train.collections.schema.conformer import Conformer
from dask_train.collections.schema.conforming import conformed
from dask_train.collections.schema.frame_schema import FrameSchema, schema_of
from dask_train.fitting.data import FitData, fit_data
from dask_train.searching.estimators.folds import Folds
from dask_train.searching.estimators.missing_text import marked
from dask_train.searching.estimators.rows import Shape, decoded
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
) -> tuple[FitData, Shape]:
    """Features and what goes with them, and what their columns mean; a frame stays one, with its names and types.

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
    if label is not None and not isinstance(label, str):
        raise ValueError(f"label={label!r}: an estimator's target is one column of the frame. Pass its name.")
    named = {"label": label, "sample_weight": sample_weight, "groups": groups}
    named = {argument: name for argument, name in named.items() if isinstance(name, str)}
    x, own, schema = _columns_of(what, x, features, named, known)
    y = own.get("label", _plain(y))
    weight, groups = (
        own.get(name, _plain(each)) for name, each in (("sample_weight", sample_weight), ("groups", groups))
    )
    for name, each in (("sample_weight", weight), ("groups", groups)):
        if each is not None and getattr(each, "ndim", 1) != 1:
            raise ValueError(f"{name} of {what} has {each.ndim} dimensions; it has one, a value for each row.")
    target_dtype = _categories("y", y)
    rows = {column: marked(what, each) for column, each in x.items()} if isinstance(x, dict) else x
    data = fit_data(what, rows, y, weight, like=Conformer(None, coded=False))
    if not isinstance(x, dict) and not isinstance(data.columns.features, int):
        raise TypeError(f"{what}: an estimator takes one array or frame of features, not several arrays.")
    shape = Shape(
        columns=data.columns,
        dtypes={name: each.dtype for name, each in x.items()} if isinstance(x, dict) else None,
        target_dtype=target_dtype,
    )
    data = replace(data, schema=schema)
    return (data, shape) if groups is None else _with_groups(what, data, shape, groups)


def _columns_of(
    what: str, x: Any, features: Any, named: dict[str, str], known: FrameSchema | None
) -> tuple[Any, dict[str, Any], FrameSchema | None]:
    """A frame's features, as a dict of columns, its columns of other use, and its schema; anything else as it is."""
    if not (is_frame(x) and hasattr(x, "columns")):
        if features is not None:
            raise ValueError("features= names columns of a frame, and x is none. Leave it out.")
        for argument, name in named.items():
            raise ValueError(f"{argument}={name!r} names a column of a frame, and x is none. Pass an array.")
        return x, {}, None
    picks_of(what, features, named.get("label"))  # refuses a label among the features
    names = list(x.columns)
    resolved(what, names, [[name] for name in named.values()])
    left = [name for name in names if name not in named.values()]
    chosen = left if features is None else [features] if is_name(features) else list(features)
    resolved(what, names, [chosen])
    schema = known or schema_of(what, x, chosen, ())
    if known is not None:
        x = conformed(what, x, [(column.name, column) for column in known.columns], coded=False)
    return {name: x[name] for name in chosen}, {argument: x[name] for argument, name in named.items()}, schema


def _with_groups(what: str, data: FitData, shape: Shape, groups: Any) -> tuple[FitData, Shape]:
    """The same with one more column, so that groups are of the very rows, in whatever order a collection comes."""
    if not isinstance(data.value, tuple):
        raise ValueError(
            f"{what} lies in shared memory already, and groups= is none of its columns. Pass cv= pairs of row numbers, "
            "such as list(GroupKFold().split(rows, groups=groups))."
        )
    shape = replace(shape, groups=len(data.value), group_dtype=_categories("groups", groups))
    value = (*data.value, exact_ids(what, groups))
    return replace(data, value=value, columns=data.columns.with_rows(()), made=None), shape


def _plain(given: Any) -> Any:
    return np.asarray(given) if isinstance(given, list | tuple) else given


def folds_of(cv: Any, segments: SharedSegments, shape: Shape, client: Client) -> Folds:
    """The folds of a data set; its targets and groups come to this process for that, its features do not."""
    y = _values("y", segments, shape.columns.labels, shape.target_dtype, client)
    groups = _values("groups", segments, shape.groups, shape.group_dtype, client)
    return Folds(cv, segments.num_rows, _row_shape(segments, shape), y, groups)


def _values(what: str, segments: SharedSegments, number: int | None, dtype: Any, client: Client) -> Any:
    """All values of a column, in this process; None where there is none."""
    if number is None:
        return None
    arrays = segments.arrays()
    columns: Sequence[Any] = (
        list(arrays.values()) if isinstance(arrays, dict) else list(arrays) if isinstance(arrays, tuple) else [arrays]
    )
    return decoded(what, client.compute(columns[number]).result(), dtype)


def _row_shape(segments: SharedSegments, shape: Shape) -> tuple[int, ...]:
    """The shape of a row of features."""
    if shape.dtypes is not None:
        return (len(shape.dtypes),)
    return tuple(segments.schema[shape.columns.features].row_shape)


def _categories(what: str, given: Any) -> Any:
    """The type of values that are categories; None of others."""
    dtype = getattr(given, "dtype", None)
    if not hasattr(dtype, "categories"):
        return None
    if dask.is_dask_collection(given) and not given.cat.known:
        raise ValueError(
            f"The categories of {what} are not known yet. Make them known: {what} = {what}.cat.as_known()."
        )
    return dtype
