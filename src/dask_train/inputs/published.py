"""Rows of a data set that lies in shared memory, with its columns as they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dask_train.collections.partition.form import resolved
from dask_train.collections.schema.conformer import Conformer
from dask_train.collections.schema.frame_schema import FrameSchema
from dask_train.collections.schema.placed import mapped, put
from dask_train.data.columns import Columns
from dask_train.data.selection import column_names
from dask_train.data.structure import filled, leaves
from dask_train.inputs.data import InputData
from dask_train.shared_data.segments import SharedSegments


def of_segments(what: str, x: Any, segments: SharedSegments, others: Sequence[Any], like: Conformer) -> InputData:
    """Return a data set whose own names or order say which columns are features, targets and weights.

    Raises
    ------
    ValueError
        They do not, or there are other targets or weights.
    """
    if any(other is not None for other in others):
        raise ValueError(f"{what}: a published data set has inputs, targets and weights together. Pass it alone.")
    schema = segments.schema
    if schema.names is not None:
        known = ", ".join(schema.names)
        numbers = {name: number for number, name in enumerate(schema.names)}
        if not {"x", "y"} >= set(numbers) - {"sample_weight"} or "x" not in numbers:
            raise ValueError(
                f"{what}: the columns of that data set are {known}; which of them are inputs is not told. Say it with "
                "features={'input': 'column'} and label=, or publish it as (X, y), or (X, y, sample_weight)."
            )
        columns = Columns(features=numbers["x"], labels=numbers.get("y"), weights=numbers.get("sample_weight"))
        return _lying(what, x, segments, columns, like)
    if len(schema) > 3:
        raise ValueError(f"{what}: that data set has {len(schema)} columns. Publish it as (X, y).")
    return _lying(what, x, segments, Columns.of_batch(len(schema)), like)


def of_named_segments(
    what: str, x: Any, segments: SharedSegments, columns: Columns, picks: Sequence[Any], like: Conformer
) -> InputData:
    """Return a data set of which columns were named; they stay as they are, since they lie in shared memory already.

    Parameters
    ----------
    columns
        Places of features, targets and weights among the picks.
    picks
        Names; see :class:`~dask_train.collections.partition.form.Picks`.

    Raises
    ------
    ValueError
        There is no such column, or several are to be a matrix.
    """
    known = column_names(segments.schema)
    numbers = []
    for names, matrix in resolved(what, known, picks):
        if matrix:
            raise ValueError(
                f"{what} lies in shared memory with its columns as they are, so {names} can't be one matrix. Choose "
                "them when it is published, dt.publish_dataset(frame, name=..., features=..., label=...); or name "
                "columns one by one, features={'a': 'a', 'b': 'b'}."
            )
        numbers.append(known.index(names[0]))
    placed = [filled(places, numbers.__getitem__) for places in columns.places().values()]
    return _lying(what, x, segments, Columns(features=placed[0], labels=placed[1], weights=placed[2]), like)


def in_shared_memory(data: InputData) -> tuple[Any, Any, Any]:
    """Return features, targets and weights of a published data set, as Dask arrays whose blocks are its segments."""
    segments = data.source("data", sparse=True)
    assert isinstance(segments, SharedSegments)
    return data.columns.pack(leaves(segments.arrays()))


def _lying(what: str, x: Any, segments: SharedSegments, columns: Columns, like: Conformer) -> InputData:
    """Return a data set with the schema of its frames, once it is seen that the model knows these columns."""
    schema = None
    if frames := segments.frames:
        inputs = filled(columns.features, frames.__getitem__)
        like.lying(what, inputs, filled(columns.labels, frames.__getitem__))
        schema = like.schema(*_features(columns.features, inputs, frames))
    return InputData(value=x, columns=columns.with_rows(segments.schema), schema=schema)


def _features(places: Any, inputs: Any, frames: Sequence[FrameSchema | None]) -> tuple[Any, Any]:
    """Return how columns make the features, None unless they are as those of one frame; and their names by place."""
    found: list[list[Any] | None] = []

    def note(frame: FrameSchema | None, _: Any) -> None:
        found.append(None if frame is None else [column.name for column in frame.columns])

    mapped(inputs, None, note)
    flat = [name for names in found for name in names or ()]
    are_named = None not in found and None not in flat and len(set(flat)) == len(flat)
    are_of_one = are_named and not isinstance(places, list | tuple)
    features = filled(places, lambda number: getattr(frames[number], "features", None)) if are_of_one else None
    return features, put(inputs, found)
