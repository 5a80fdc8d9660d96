"""Distinguish what users pass as ``data=``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from dask.base import is_dask_collection
from dask.delayed import Delayed

from dask_train.collections.arrays import array_source
from dask_train.collections.bags import bag_opened
from dask_train.collections.blocks import check_plain
from dask_train.collections.delayed import delayed_source
from dask_train.collections.frames import frame_source, is_dask_frame
from dask_train.collections.partition.form import Picks, open_form, picks_of
from dask_train.collections.source import OwnRows, Source
from dask_train.collections.tensors import as_numpy
from dask_train.data.sparse_rows import is_sparse


def check_data(
    what: str,
    data: Any,
    *,
    features: str | Sequence[str] | None = None,
    label: str | None = None,
    picks: Picks | None = None,
    sparse: bool = False,
) -> Source:
    """Return what a user passed, as a source of partitions; nothing is computed.

    Parameters
    ----------
    what
        How errors call it, such as ``data['worker']``.
    data
        A Dask or NumPy array with rows along its first axis, or a tensor; a Dask or pandas frame, or one of its
        columns; a tuple, list or dict of these; or a list of delayed results, each a partition of such rows.
    features
        Columns of a frame: one name gives that column, ``(n, *row_shape)``; a list gives one matrix,
        ``(n, len(features))``, in the common dtype (``numpy.result_type``); None means all but the label. Of a dict:
        the name of one entry.
    label
        A column of a frame, or an entry of a dict, that makes batches ``(x, y)``.
    picks
        In place of both, what makes each array of a batch.
    sparse
        Whether matrices may be sparse: for those who read partitions as CSR matrices, or batches, which are dense.

    Returns
    -------
    Source
        Frames of pandas have been made arrays, of which there is one copy in the client.

    Raises
    ------
    TypeError, ValueError
        It is something else, columns can't be numbers, names are unknown, or the row counts differ.

    Notes
    -----
    Numbers and booleans keep their dtype, and NaN stays NaN. Nullable columns become float with NaN for NA: float64,
    or the width of a narrower float. Categories become their int64 codes, -1 for NaN. Lists, tensors and objects that
    are arrays of one shape become ``(n, *shape)``.
    """
    data = bag_opened(what, data)
    picks = picks or picks_of(what, features, label)
    if isinstance(data, list) and data and any(map(_is_delayed, data)):
        if not all(map(_is_delayed, data)):
            odd = next(value for value in data if not _is_delayed(value))
            raise TypeError(
                f"{what} is a list of delayed results and a {type(odd).__name__}. Each element of such a list is a "
                "partition; make all of them delayed."
            )
        return delayed_source(what, data, picks)
    if isinstance(data, OwnRows):
        data = data.to_dask()
    form = open_form(what, data, picks)
    form["values"] = [as_numpy(what, value) for value in form["values"]]
    for value in form["values"]:
        _check_type(what, value, sparse=sparse)
    if any(map(is_dask_frame, form["values"])):
        return frame_source(what, form)
    return array_source(what, form, sparse=sparse)


def _check_type(what: str, value: Any, *, sparse: bool) -> None:
    if _is_delayed(value):
        raise TypeError(
            f"{what} has a {type(value).__name__}, which does not tell its rows. Pass a list, [part, part, ...], in "
            "which each delayed result is a partition with all columns; or make an array of it, with "
            "dask.array.from_delayed."
        )
    if is_sparse(value):
        if not sparse:
            check_plain(what, value)
        return
    import dask.array as da  # takes a second, and many runs have none

    if not (isinstance(value, da.Array | np.ndarray) or is_dask_frame(value) or _is_pandas(value)):
        is_plain = is_dask_collection(value) or isinstance(value, str) or hasattr(value, "dtype")
        is_dataset = not is_plain and (hasattr(value, "__getitem__") or hasattr(value, "__iter__"))
        hint = " Datasets of other libraries have no partitions: pass the arrays that they are made of."
        raise TypeError(
            f"{what} has a {type(value).__name__}; pass Dask or NumPy arrays, Dask or pandas frames, a tuple or dict "
            f"of them, or a list of delayed partitions.{hint if is_dataset else ''}"
        )


def _is_delayed(value: Any) -> bool:
    return isinstance(value, Delayed)


def _is_pandas(value: Any) -> bool:
    return any(kind.__module__.startswith("pandas.") for kind in type(value).__mro__) and hasattr(value, "iloc")
