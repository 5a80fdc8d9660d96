"""Arrays as a source: Dask's, NumPy's, and what frames of pandas in the client become."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from dask import delayed

from dask_train.collections.blocks import (
    array_of_views,
    check_plain,
    check_unmasked,
    delayed_blocks,
    has_sparse_blocks,
    with_own_rows,
)
from dask_train.collections.partition.form import PartitionForm
from dask_train.collections.partition.kinds import ColumnPlan
from dask_train.collections.partition.plan import Read, make_plan
from dask_train.collections.partition.reading import read
from dask_train.collections.partition.text import text_rows
from dask_train.collections.persisted import array_persisted_nbytes
from dask_train.collections.pickled import carried
from dask_train.collections.source import Source
from dask_train.data.columns import TEXT, Column

if TYPE_CHECKING:
    import dask.array as da


@dataclass(frozen=True, kw_only=True)
class ArraySource(Source):
    """Arrays that are cut at the same rows.

    Attributes
    ----------
    arrays
        As the user passed them, ``(n, *row_shape)`` each.
    cut
        The same rows, one chunk a partition.
    plan
        A :class:`dask_train.collections.partition.plan.Plan`.
    """

    arrays: tuple[da.Array, ...]
    cut: tuple[da.Array, ...]
    plan: Mapping[str, Any]

    @property
    def persisted_nbytes(self) -> int | None:
        return array_persisted_nbytes(self.arrays)

    def snapshot(self) -> ArraySource:
        arrays = tuple(map(with_own_rows, self.arrays))
        return replace(self, arrays=arrays, cut=_cut_alike(arrays))

    def delayed_parts(self, part: Callable[..., Any], finish: Callable[[list[Any]], Any]) -> list[Any]:
        make = delayed(carried(part, finish, self.plan), pure=False)
        return [make(number, *pieces) for number, pieces in enumerate(zip(*delayed_blocks(self.cut), strict=True))]


def array_source(what: str, form: PartitionForm, *, sparse: bool = False) -> Source:
    """Arrays, and frames of pandas, which are made arrays here: by one copy, unless they are made of an array.

    Parameters
    ----------
    what
        How errors call the data.
    form
        The data, taken apart.
    sparse
        Whether matrices may be sparse, and stay so.

    Raises
    ------
    TypeError, ValueError
        There are no rows, their counts differ, or they can't be numbers.
    """
    plan, values = make_plan(what, form), form["values"]
    raw_arrays = [_array(what, one, values) for one in plan["reads"]]
    arrays = tuple(_dask_array(what, value, sparse=sparse) for value in raw_arrays)
    as_arrays: list[Any] = [
        {"piece": number, "columns": None, "matrix": None, **({"sparse": True} if has_sparse_blocks(array) else {})}
        for number, array in enumerate(arrays)
    ]
    counts = [array.shape[0] for array in arrays]
    known = [int(count) for count in counts if not np.isnan(count)]
    if len(set(known)) > 1:
        raise ValueError(f"The arrays of {what} have {', '.join(map(str, counts))} rows; they have to be the same.")
    if known and not known[0]:
        raise ValueError(f"{what} has no rows.")
    cut = _cut_alike(arrays)
    rows = [size for array in arrays for size in array.shape[1:]]
    # The lengths of texts and of sparse rows are unknown.
    nbytes = [math.nan if array.dtype.hasobject or has_sparse_blocks(array) else array.nbytes for array in arrays]
    return ArraySource(
        names=plan["names"],
        is_tuple=plan["is_tuple"],
        num_rows=known[0] if known else None,
        nbytes=None if np.isnan(sum(nbytes)) else int(sum(nbytes)),
        lengths=next((tuple(map(int, array.chunks[0])) for array in cut if not np.isnan(array.shape[0])), None),
        columns=None if any(map(np.isnan, rows)) else tuple(map(_column, arrays)),
        arrays=arrays,
        cut=cut,
        plan={**plan, "reads": as_arrays, "taken_apart": True},
    )


def _array(what: str, one: Read, values: Sequence[Any]) -> Any:
    value = values[one["piece"]]
    if one["columns"] is None:
        return value
    if one["matrix"] is not None and (rows := _view(value, one["columns"], one["matrix"])) is not None:
        return rows
    return read(what, one, values)


def _view(frame: Any, columns: Sequence[ColumnPlan], dtype: str) -> np.ndarray | None:
    """Return columns of a frame as one matrix that is a view of them, C-contiguous; else None.

    It is one where each row lies in memory as a whole, as in frames that are made of a NumPy array.
    """
    several = [frame[column["name"]].to_numpy() for column in columns if column["how"] == "plain"]
    if len(several) < len(columns) or {array.dtype.str for array in several} != {dtype}:
        return None
    first = several[0]
    begins = [array.__array_interface__["data"][0] for array in several]
    lie_together = begins == [begins[0] + number * first.itemsize for number in range(len(several))]
    if not lie_together or {array.strides for array in several} != {(first.itemsize * len(several),)}:
        return None
    return np.lib.stride_tricks.as_strided(
        first, (len(first), len(several)), (*first.strides, first.itemsize), writeable=False
    )


def _column(array: da.Array) -> Column:
    dtype = TEXT if array.dtype.hasobject else array.dtype.str
    return Column(dtype=dtype, row_shape=array.shape[1:], is_sparse=has_sparse_blocks(array))


def _dask_array(what: str, value: Any, *, sparse: bool) -> da.Array:
    import dask.array as da  # takes a second, and many runs have none

    if value.ndim == 0:
        raise ValueError(f"{what} has an array without an axis; rows lie along the first one.")
    if value.dtype.hasobject and value.dtype != object and value.dtype.kind != "T":
        raise TypeError(f"{what} has an array of {value.dtype}; make it numbers, with astype for instance.")
    if sparse and value.ndim == 2:
        check_unmasked(what, value)
    else:
        check_plain(what, value)
    if isinstance(value, da.Array):
        return value
    if value.dtype.hasobject:
        value = text_rows(f"of an array of {value.dtype} of {what}", value)
    return array_of_views(value)


def _cut_alike(arrays: Sequence[da.Array]) -> tuple[da.Array, ...]:
    """Return the same rows in chunks like those of the largest array, each with its rows whole.

    Sparse rows stay as they are cut: Dask can't put all kinds of them together.
    """
    first = max(arrays, key=lambda array: (not np.isnan(array.shape[0]), has_sparse_blocks(array), array.nbytes))
    cut = []
    for array in arrays:
        whole_rows = dict.fromkeys(range(1, array.ndim), -1)
        rows_known = not (np.isnan(array.shape[0]) or np.isnan(first.shape[0]))
        if rows_known:
            cut.append(array.rechunk({0: first.chunks[0], **whole_rows}))
        elif array.numblocks[0] == first.numblocks[0]:
            cut.append(array.rechunk(whole_rows) if whole_rows else array)
        else:
            raise ValueError(
                f"Two arrays of unknown length have {first.numblocks[0]} and {array.numblocks[0]} chunks. Call "
                "compute_chunk_sizes() on both, and train again."
            )
    return tuple(cut)
