"""What users pass for rows of boosted trees, as one data set and what its columns mean."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import dask
import dask.array as da
import numpy as np

from dask_train.collections.blocks import check_plain
from dask_train.collections.ids import exact_ids
from dask_train.collections.partition.form import Picks, is_frame, is_name, open_form
from dask_train.collections.partition.plan import make_plan
from dask_train.collections.partition.reading import read
from dask_train.collections.schema.conformer import Conformer
from dask_train.collections.schema.frame_schema import FrameSchema, names_in
from dask_train.collections.source import Source
from dask_train.compat.dask import meta_of
from dask_train.data.columns import Columns, SourceColumn
from dask_train.fitting.trees.checks import check_one_number
from dask_train.inputs.data import InputData
from dask_train.inputs.making import input_data
from dask_train.shared_data.published import as_source
from dask_train.shared_data.segments import SharedSegments, is_data_set, segments_in


def num_parts(source: Source | SharedSegments) -> int | None:
    """Return how many partitions have rows; None if only computing shows."""
    lengths = source.lengths
    return None if lengths is None else sum(1 for length in lengths if length)


def tree_data(
    what: str,
    x: Any,
    y: Any,
    others: Mapping[str, Any],
    *,
    features: Any = None,
    label: Any = None,
    workers: int | None = 1,
    known: FrameSchema | None = None,
) -> InputData:
    """Features, targets and what else goes with rows as one data set; nothing of a collection is computed.

    Parameters
    ----------
    what
        How errors call it.
    x, y
        Arrays, frames, or a data set of :func:`dask_train.get_dataset`, which has the targets, too.
    others
        ``sample_weight``, ``margin``, ``qid``; each may be None.
    features, label
        Of a frame, in place of ``y``: names of columns. Then others are names, too.
    workers
        NumPy arrays and frames of pandas are cut for that many. None: they are only looked at.
    known
        What is known of the columns of frames, which are made like that.

    Raises
    ------
    TypeError, ValueError
        They can't be put together.
    """
    others = {name: value for name, value in others.items() if value is not None}
    if x is None:
        raise ValueError(f"{what}: there are no features. Pass arrays, a frame, or a data set of dt.get_dataset(name).")
    if segments_in(x) is not None and (y is None or is_data_set(x)):  # an array of dt.persist may go beside targets
        return _published(what, x, y, others, features, label, known)
    names, like = ["x", "y", *others], Conformer(known, coded=False)
    are_named = features is not None or label is not None
    if are_named:
        _check_named(what, x, y, others, label)
    x, others = _with_exact_queries(what, x, others, are_named=are_named)
    if are_named:
        matrix = [features] if features is not None and is_name(features) else features
        labels, weights = list(names_in(label)), list(names_in(list(others.values())))
        for each in labels:
            _check_label(what, meta_of(x)[each] if each in x.columns else None)
        picked = [matrix, label, *others.values()]
        if not {*labels, *weights} & {*names_in(matrix)}:  # else it is refused below
            x, picked[0] = like.named(what, x, matrix, [*labels, *weights])
        data = _made(what, x, Picks(arrays=picked, is_tuple=True), names, workers)
        like.note_targets(what, {name: meta_of(x).dtypes[name] for name in labels})
        return replace(data, schema=like.schema(picked[0]))
    if y is None:
        raise ValueError(f"{what}: there are no targets. Pass y, or name the column of a frame: label='name'.")
    for name, value in {"y": y, **others}.items():
        if isinstance(value, str):
            raise ValueError(
                f"{what}: {name} is {value!r}, a name. Pass the values; or a frame and "
                "label=, whose columns go by names."
            )
    _check_label(what, meta_of(y))
    x = like.inputs(what, x) if hasattr(meta_of(x), "iloc") else x
    data = _made(what, (x, y, *others.values()), None, names, workers)
    targets = meta_of(y)
    if is_frame(x) and hasattr(targets, "iloc"):
        dtypes = dict(targets.dtypes) if is_frame(targets) else {targets.name: targets.dtype}
        like.note_targets(what, {name: dtype for name, dtype in dtypes.items() if name is not None})
    return replace(data, schema=like.schema_of(x))


def _with_exact_queries(
    what: str, x: Any, others: Mapping[str, Any], *, are_named: bool
) -> tuple[Any, Mapping[str, Any]]:
    """Return the rows with numbers of queries that keep all of their digits."""
    if "qid" not in others:
        return x, others
    if are_named:
        return exact_ids(what, x, list(names_in(others["qid"]))), others
    return x, {**others, "qid": exact_ids(what, others["qid"])}


def _check_label(what: str, label: Any) -> None:
    """Refuse categories: an estimator would learn their codes, and tell classes by these."""
    if str(getattr(label, "dtype", "")) == "category":
        raise TypeError(
            f"The labels of {what} are categories, of which neither library knows. Pass text to LightGBM, "
            f"frame[{label.name!r}].astype(str), and codes to XGBoost, frame[{label.name!r}].cat.codes, less rows "
            "without a label."
        )


def _check_named(what: str, x: Any, y: Any, others: Mapping[str, Any], label: Any) -> None:
    if not is_frame(x) or y is not None or label is None:
        raise ValueError(
            f"{what}: features= and label= choose columns of a frame, which has the targets, too. Pass the frame and "
            "label='name', and no y."
        )
    if odd := [name for name, value in others.items() if not is_name(value) and not isinstance(value, list)]:
        raise ValueError(f"{what}: {odd[0]} is one of a frame's columns here; name it.")


def _made(what: str, value: Any, picks: Picks | None, names: list[str], workers: int | None) -> InputData:
    form = open_form(what, value, picks)
    frame = form["values"][0]
    if not any(map(dask.is_dask_collection, form["values"])) and not isinstance(frame, list):
        for piece in form["values"]:
            check_plain(what, piece)
        plan = make_plan(what, form)
        arrays = [
            read(what, one, form["values"]) if one["columns"] else np.asarray(form["values"][one["piece"]])
            for one in plan["reads"]
        ]
        name = False if workers is None else None  # the name of rows that are computed is a hash of all of them
        cut = [
            da.from_array(each, chunks=(_even(len(each), workers or 1), *each.shape[1:]), name=name) for each in arrays
        ]
        source = as_source(what, tuple(cut))
        columns = plan["reads"][0]["columns"]
    else:
        source = as_source(what, value, picks=picks)
        partition_plan = getattr(source, "plan", None)  # as of frames; delayed partitions have none
        columns = None if partition_plan is None else partition_plan["reads"][0]["columns"]
    places = dict(zip(names, range(len(names)), strict=True))
    column_places = Columns(
        features=places["x"],
        labels=places["y"],
        weights=places.get("sample_weight"),
        margins=places.get("margin"),
        groups=places.get("qid"),
    )
    known = _known(what, source, column_places)
    if columns is not None:
        meta = meta_of(frame)
        origins = tuple(SourceColumn(name=each["name"], dtype=meta[each["name"]].dtype) for each in columns)
        known = known.with_origins({known.features: origins})
    return InputData(value=value, columns=known, opened=source)


def _even(num_rows: int, workers: int) -> tuple[int, ...]:
    """Return how many rows each piece has, one for each worker that gets any; some have one more than others."""
    num_pieces = max(1, min(workers, num_rows))
    length, num_longer = divmod(num_rows, num_pieces)
    return (length + 1,) * num_longer + (length,) * (num_pieces - num_longer)


def _known(what: str, source: Source | SharedSegments, columns: Columns) -> Columns:
    """Return the columns with what rows are, of which features have to be a matrix."""
    rows = source.columns
    shape = None if rows is None else rows[columns.features].row_shape
    if rows is None or shape is None or len(shape) != 1:
        problem = "are not known before they are computed" if shape is None else f"have the shape {shape}"
        raise ValueError(f"{what}: rows of features {problem}. Pass a matrix, a row each, of Dask, NumPy or pandas.")
    if any(each.dtype and np.dtype(each.dtype).kind in "mM" for each in rows):
        raise TypeError(
            f"{what} has an array of dates or spans of time. Make numbers of them, such as "
            "(dates - dates.min()) / numpy.timedelta64(1, 'h')."
        )
    known = columns.with_rows(rows)
    check_one_number(what, known)
    return known


def _published(
    what: str, x: Any, y: Any, others: Mapping[str, Any], features: Any, label: Any, known: FrameSchema | None
) -> InputData:
    if odd := [name for name in others if name != "sample_weight"]:
        raise ValueError(f"{what}: a published data set has no {odd[0]}. Pass the collections themselves.")
    like = Conformer(known, coded=False)
    data = input_data(what, x, y, others.get("sample_weight"), features=features, label=label, like=like)
    places = [place for place in data.columns.places().values() if place is not None]
    if data.columns.labels is None or not all(isinstance(place, int) for place in places):
        raise ValueError(f"{what}: publish it as a matrix of features and a column of targets: (X, y).")
    source = data.source(what)
    return InputData(value=x, columns=_known(what, source, data.columns), opened=source, schema=data.schema)
