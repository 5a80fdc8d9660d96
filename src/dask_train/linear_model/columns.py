"""The rows of a verb on Dask collections, as one data set whose partitions are computed once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import dask
import dask.array as da
import numpy as np

from dask_train.cluster import submitted
from dask_train.cluster.clients import client_or_none
from dask_train.collections.blocks import array_of_pieces, has_sparse_blocks
from dask_train.collections.frames import check_one_origin
from dask_train.errors import DataError
from dask_train.linear_model.collections import (
    as_array,
    as_features,
    check_is_matrix,
    check_rows_unmasked,
    check_waits,
    is_dask,
    plain_dtypes,
)
from dask_train.shared_data.api import shared_arrays
from dask_train.shared_data.parts import PART
from dask_train.shared_data.published import as_source
from dask_train.shared_data.segments import SharedSegments

if TYPE_CHECKING:
    from dask_train.cluster.clients import Client

DATA = "the data"
# Computes collections of the same rows, and gives them as arrays whose lengths are known.
Compute = Callable[[Sequence[Any]], tuple[Any, ...]]


@contextmanager
def _refusing() -> Iterator[None]:
    """Turn errors of partitions into a ValueError, as scikit-learn's estimators raise it."""
    try:
        yield
    except TypeError as error:
        raise ValueError(str(error)) from error
    except DataError as error:
        if isinstance(error.__cause__, TypeError | ValueError):
            raise ValueError(str(error)) from error.__cause__
        raise


def computed_here(columns: Sequence[Any]) -> tuple[Any, ...]:
    """Return the rows of collections as arrays of this process, each partition computed once.

    Sparse ones, and what goes with them, stay in their partitions, as Dask arrays.
    """
    source = as_source(DATA, tuple(columns), sparse=True)
    is_sparse = has_sparse_blocks(columns[0])
    if isinstance(source, SharedSegments):
        arrays: tuple[Any, ...] = tuple(columns) if is_sparse else dask.compute(*columns)
        return arrays
    with _refusing():
        parts = submitted.computed(source.delayed_parts(PART, list))
    filled = [part for part in parts if part[0].shape[0]] or parts[:1]
    return tuple((array_of_pieces if is_sparse else np.concatenate)(each) for each in zip(*filled, strict=True))


def computed_in_shared_memory(columns: Sequence[Any], client: Client | None = None) -> tuple[da.Array, ...]:
    """Return the rows of collections as Dask arrays on shared memory, which a run uses without a copy."""
    with _refusing():
        return shared_arrays(DATA, tuple(columns), client)


def lazy_columns(X: Any, y: Any, sample_weight: Any, compute: Compute) -> tuple[Any, ...]:
    """Features, targets and perhaps weights as one data set: frames of Dask, or arrays.

    Raises
    ------
    ValueError
        They have different numbers of rows, the features are no matrix of numbers, or weights are more than one a row;
        or the client is asynchronous.
    """
    check_waits(client_or_none(None))
    check_rows_unmasked(X, y, sample_weight)
    for name, each in (("y", y), ("sample_weight", sample_weight if sample_weight is not None else ())):
        if not is_dask(each) and np.ndim(each) == 0:
            raise ValueError(f"{name} is {each!r}; it is the values themselves, one a row, such as frame['column'].")
    if sample_weight is not None and getattr(sample_weight, "ndim", 1) != 1:
        raise ValueError(f"sample_weight has {sample_weight.ndim} dimensions; it is (n,), a weight of each row.")
    X = as_features(X)
    check_is_matrix(X)
    named = {"X": X, "y": y} | ({} if sample_weight is None else {"sample_weight": sample_weight})
    return together(named, compute)


def together(named: Mapping[str, Any], compute: Compute) -> tuple[Any, ...]:
    """Columns of one data set, by their names: frames that were cut from one as they are; else arrays, by position.

    Raises
    ------
    ValueError
        They have different numbers of rows, or two are frames that were not cut from one.
    """
    columns = [_with_values(each) for each in named.values()]
    frames = [each for each in columns if _is_dask_frame(each)]
    if len(frames) > 1:
        check_one_origin("The data", frames)  # by position, rows of one would be paired with others of the other
        if len(frames) < len(columns):  # beside arrays nobody looks at their indexes later
            found = iter(compute(frames))
            columns = [next(found) if _is_dask_frame(each) else each for each in columns]
    if len(frames) == len(columns):
        return tuple(columns)
    arrays = [each if is_dask(each) else _in_memory(name, each) for name, each in zip(named, columns, strict=True)]
    unknown = [_is_dask_frame(each) or bool(np.isnan(each.shape[0])) for each in arrays]
    if any(map(_is_dask_frame, arrays)) or not all(unknown) or len({each.numblocks[0] for each in arrays}) > 1:
        arrays = _computed_together(arrays, unknown, compute)
    lengths = [each.shape[0] for each in arrays]
    known = [length for length in lengths if not np.isnan(length)]
    if 0 in known:
        raise ValueError("X has no rows, so there is nothing to fit or to score. Pass one at least.")
    if len(set(known)) > 1:
        row_counts = ", ".join(f"{name} {int(rows):,}" for name, rows in zip(named, lengths, strict=True))
        raise ValueError(f"Numbers of rows differ: {row_counts}. Pass as many of each.")
    return tuple(arrays)


def _computed_together(arrays: Sequence[Any], unknown: Sequence[bool], compute: Compute) -> list[Any]:
    """Compute those of unknown length; arrays of as many blocks at once, since they may be of one shuffled frame."""
    places: dict[int | None, list[int]] = {}
    for place, each in enumerate(arrays):
        if unknown[place]:
            places.setdefault(None if _is_dask_frame(each) else each.numblocks[0], []).append(place)
    found = list(arrays)
    for several in places.values():
        for place, array in zip(several, compute([arrays[place] for place in several]), strict=True):
            found[place] = array
    return found


def columns_of(X: Any, y: Any, sample_weight: Any, workers: int | None) -> tuple[Any, ...]:
    """Features, targets and perhaps weights of a fit, computed once: in shared memory, or here with ``workers=0``.

    Raises
    ------
    ValueError, DataError
        As of :func:`lazy_columns`, or a partition can't be computed.
    """
    compute = computed_here if workers == 0 else computed_in_shared_memory
    return compute(lazy_columns(X, y, sample_weight, compute))


def over_rows(function: Callable[[list[Any]], Any], columns: Sequence[Any], *, keep: bool = False) -> Sequence[Any]:
    """Delayed results of a function of the columns of each partition, also of one without rows.

    With ``keep`` they are computed from now on, once, and stay in Dask's memory for as long as these are there.
    """
    lazy = as_source(DATA, tuple(columns), sparse=True).delayed_parts(PART, function)
    with _refusing():  # without a client all is computed here
        kept: tuple[Any, ...] = submitted.persisted(lazy) if keep else tuple(lazy)
    return kept


def computed(delayed: Sequence[Any]) -> tuple[Any, ...]:
    """Values that are delayed.

    Raises
    ------
    ValueError
        A partition can't be data of a model.
    """
    with _refusing():
        values: tuple[Any, ...] = submitted.computed(delayed)
    return values


def _in_memory(name: str, column: Any) -> da.Array:
    return as_array(name, plain_dtypes(column) if hasattr(column, "iloc") else column)


def _is_dask_frame(value: Any) -> bool:
    return is_dask(value) and hasattr(value, "to_dask_array")


def _with_values(column: Any) -> Any:
    """Return a column of categories as what they stand for; all else as it is."""
    if _is_dask_frame(column) and column.ndim == 1 and str(column.dtype) == "category":
        return column.astype(column.dtype.categories.dtype if column.cat.known else object)
    return column
