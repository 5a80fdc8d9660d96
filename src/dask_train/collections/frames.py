"""Frames of Dask as a source."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from dask import delayed

from dask_train.collections.partition.form import PartitionForm
from dask_train.collections.partition.plan import columns_of, make_plan
from dask_train.collections.persisted import frame_persisted_nbytes
from dask_train.collections.pickled import carried
from dask_train.collections.source import Source
from dask_train.compat.dask import are_co_aligned, has_meta, meta_of
from dask_train.data.columns import Column


@dataclass(frozen=True, kw_only=True)
class FrameSource(Source):
    """Frames and columns cut from one frame; partitions are those of their one expression.

    Attributes
    ----------
    frames
        ``dask.dataframe`` DataFrames and Series.
    plan
        A :class:`dask_train.collections.partition.plan.Plan`, decided from the dtypes.
    """

    frames: tuple[Any, ...]
    plan: Mapping[str, Any]

    @property
    def persisted_nbytes(self) -> int | None:
        return frame_persisted_nbytes(self.frames)

    def delayed_parts(self, part: Callable[..., Any], finish: Callable[[list[Any]], Any]) -> list[Any]:
        # One expression is optimized as a whole. Two are not: reading fewer columns of a Parquet file, for instance,
        # joins partitions, so that the lists of X and y would differ (https://github.com/dask/dask/issues/12488).
        one = _together(self.frames, self.names) if self.plan["same_index"] else self.frames[0]
        make = delayed(carried(part, finish, self.plan), pure=False)
        return [make(number, piece) for number, piece in enumerate(one.to_delayed())]


def frame_source(what: str, form: PartitionForm) -> Source:
    """Frames of Dask; nothing is computed.

    Raises
    ------
    TypeError, ValueError
        A column can't be numbers, or the frames were not cut from one.
    """
    values = form["values"]
    if len(values) > 1:
        check_one_origin(what, values)
    plan = make_plan(what, {**form, "values": list(map(meta_of, values))})
    if form["picks"] is not None:
        needed = list(dict.fromkeys(column["name"] for one in plan["reads"] for column in one["columns"] or ()))
        values = [in_own_order(values[0], needed)]
    known = columns_of(plan)
    is_put_together = form["is_tuple"] or form["names"] is not None
    return FrameSource(
        names=plan["names"],
        is_tuple=plan["is_tuple"],
        columns=None if known is None else tuple(Column(dtype=dtype, row_shape=shape) for dtype, shape in known),
        frames=tuple(values),
        plan={**plan, "same_index": is_put_together},
    )


def is_dask_frame(value: Any) -> bool:
    """Return whether a value is a frame or a column of Dask; those who use only arrays need no pandas for it."""
    comes_from = any(kind.__module__.startswith("dask.dataframe") for kind in type(value).__mro__)
    return comes_from and has_meta(value) and hasattr(meta_of(value), "iloc")


def in_own_order(frame: Any, names: Sequence[Any]) -> Any:
    """Return some columns of a frame, in the frame's own order.

    Dask's optimizer fails on another order after ``categorize``: "'index' is not in list". It keeps a projection that
    reorders, and then looks for the parameter of Categorize in it (dask 2026.8, dask_expr/_categorical.py:186).
    """
    known = list(frame.columns)
    chosen = [name for name in known if name in names]
    return frame if chosen == known else frame[chosen]


def in_order(frame: Any, names: Sequence[Any]) -> Any:
    """Return columns of a frame of Dask or pandas in the order of the names that are given."""
    chosen = in_own_order(frame, names)
    if list(chosen.columns) == list(names):
        return chosen
    if not has_meta(chosen):
        return chosen[list(names)]
    return chosen.map_partitions(_reordered, list(names), meta=meta_of(chosen)[list(names)])


def _reordered(frame: Any, names: list[Any]) -> Any:
    return frame[names]


def delayed_pieces(what: str, frames: Sequence[Any]) -> list[Any]:
    """Return one delayed tuple a partition, in order: the pieces of frames and columns that were cut from one frame.

    Raises
    ------
    TypeError, ValueError
        They were not.
    """
    check_one_origin(what, frames)
    return list(_together(frames, None).to_delayed())


def delayed_partitions(frame: Any) -> list[Any]:
    """Return one delayed piece for each partition of a frame or column.

    Optimized as a whole, Dask reads several files of few columns in one task.
    """
    return list(frame.simplify().to_delayed(optimize_graph=False))


def arrays_of_parts(parts: Sequence[Any], columns: Sequence[Column]) -> list[Any]:
    """Return columns of partitions, delayed, as Dask arrays of unknown length, a block for each partition.

    Parameters
    ----------
    parts
        Each a sequence of arrays, one for each column.
    columns
        What they are.
    """
    import dask.array as da

    return [
        da.concatenate(
            [da.from_delayed(each[place], (np.nan, *column.row_shape), column.dtype) for each in parts],
            allow_unknown_chunksizes=True,
        )
        for place, column in enumerate(columns)
    ]


def check_one_origin(what: str, values: Sequence[Any]) -> None:
    """Check that frames and columns surely have the same rows in each partition.

    Raises
    ------
    TypeError, ValueError
        They may not.
    """
    import dask.dataframe as dd

    change = (
        "Put the columns in one frame, and pass that frame with features= and label=; or pass arrays, with "
        ".to_dask_array(lengths=True) of each."
    )
    if other := [value for value in values if not isinstance(value, dd.DataFrame | dd.Series)]:
        raise TypeError(
            f"{what} has a Dask frame beside a {type(other[0]).__name__}. Their rows can't be brought together, since "
            f"a frame does not know how many it has. {change}"
        )
    counts = [value.npartitions for value in values]
    is_one = are_co_aligned(values) or _have_equal_divisions(values)
    if len(set(counts)) > 1 or not is_one:
        raise ValueError(
            f"{what} has frames of {', '.join(map(str, counts))} partitions that were not cut from one frame, or not "
            f"partition by partition, nor have equal known divisions, so their rows may not belong together. {change}"
        )


def _have_equal_divisions(values: Sequence[Any]) -> bool:
    """Return whether each partition of all has the rows of the same range of the index.

    Their order is seen in the rows.
    """
    return all(value.known_divisions and value.divisions == values[0].divisions for value in values)


def _together(frames: Sequence[Any], names: Sequence[str] | None) -> Any:
    import dask.dataframe as dd
    import pandas as pd

    def gathered(*pieces: Any) -> Any:  # travels by value, since it is no name of a module
        return pieces if names is None else dict(zip(names, pieces, strict=True))

    return dd.map_partitions(gathered, *frames, meta=pd.Series(dtype=object), enforce_metadata=False)
