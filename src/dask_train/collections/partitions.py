"""What users pass as ``data=``, as partitions in which all columns stay together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dask.array as da
import numpy as np
from dask import delayed
from dask.utils import parse_bytes

# NumPy arrays of a client are cut into pieces of about this size before they travel.
PIECE_BYTES = parse_bytes("32 MiB")


@dataclass(frozen=True, kw_only=True)
class Columns:
    """The arrays of one data set, with rows along the first axis.

    Attributes
    ----------
    arrays
        One a column.
    names
        Their names where the user passed a dict.
    is_tuple
        Whether the user passed a tuple; else a bare array.
    """

    arrays: tuple[da.Array, ...]
    names: tuple[str, ...] | None
    is_tuple: bool


def check_data(what: str, data: Any) -> Columns:
    """What a user passed, as Dask arrays.

    Parameters
    ----------
    what
        How errors call it, such as ``data['worker']``.
    data
        A Dask or NumPy array; or a tuple, list or dict of them.

    Raises
    ------
    TypeError, ValueError
        It is something else, or the row counts differ.
    """
    names: tuple[str, ...] | None = None
    values: Sequence[Any]
    if isinstance(data, Mapping):
        names, values = tuple(map(str, data)), tuple(data.values())
    else:
        values = tuple(data) if isinstance(data, tuple | list) else (data,)
    if not values:
        raise ValueError(f"{what} is empty; pass arrays.")
    arrays = tuple(_array(what, value) for value in values)
    counts = [array.shape[0] for array in arrays]
    known = [count for count in counts if not np.isnan(count)]
    if len(set(known)) > 1:
        raise ValueError(f"The arrays of {what} have {', '.join(map(str, counts))} rows; they have to be the same.")
    if known and not known[0]:
        raise ValueError(f"{what} has no rows.")
    return Columns(arrays=arrays, names=names, is_tuple=isinstance(data, tuple | list))


def _array(what: str, value: Any) -> da.Array:
    if type(value).__module__.startswith(("dask.dataframe", "dask_expr", "pandas")):
        raise TypeError(
            f"{what} has a {type(value).__name__}. Pass arrays: frame[features].to_dask_array(lengths=True) of a Dask "
            "DataFrame, or frame[features].to_numpy() of a pandas one."
        )
    if isinstance(value, np.ndarray) and value.ndim and not value.dtype.hasobject:
        row_bytes = max(1, value.nbytes // max(1, len(value)))
        value = da.from_array(value, chunks=(max(1, PIECE_BYTES // row_bytes), *value.shape[1:]))
    if not isinstance(value, da.Array | np.ndarray):
        raise TypeError(f"{what} has a {type(value).__name__}; pass Dask or NumPy arrays, or a tuple or dict of them.")
    if value.ndim == 0:
        raise ValueError(f"{what} has an array without an axis; rows lie along the first one.")
    if value.dtype.hasobject:
        raise TypeError(f"{what} has an array of {value.dtype}; make it numbers, with astype for instance.")
    return value


def delayed_parts(columns: Columns, part: Any) -> list[Any]:
    """One delayed result a partition, all columns cut at the same rows.

    Parameters
    ----------
    columns
        The arrays.
    part
        Makes a partition of its pieces, one a column: :func:`dask_train.collections.pieces.part`, as it travels.

    Raises
    ------
    ValueError
        Arrays of unknown length are cut into different numbers of pieces.
    """
    first = max(columns.arrays, key=lambda array: array.nbytes if array.nbytes == array.nbytes else 0)
    cut = []
    for array in columns.arrays:
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
    blocks = [array.to_delayed().ravel() for array in cut]
    make = delayed(part, pure=False)
    return [make(*pieces) for pieces in zip(*blocks, strict=True)]
