"""Identifiers, such as those of queries and groups, as integers of NumPy: each keeps all of its digits."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from dask import delayed

from dask_train.collections.delayed import are_parts
from dask_train.collections.partition.form import is_frame
from dask_train.compat.dask import has_meta, meta_of


def exact_ids(what: str, rows: Any, names: Sequence[Any] | None = None) -> Any:
    """Give nullable and Arrow's integers as NumPy's, since as features they are floats, which have 53 bits.

    Parameters
    ----------
    what
        How errors call the data.
    rows
        A frame or a column of Dask or pandas, or a list of delayed frames; all else comes back as it is.
    names
        Those of a frame's columns that are identifiers; all of them by default.

    Raises
    ------
    ValueError
        One is missing; of Dask, in the task.
    """
    if names and are_parts(rows):
        return [delayed(partial(exact_ids, what, names=names), pure=False)(part) for part in rows]
    meta = meta_of(rows)
    if not hasattr(meta, "iloc"):
        return rows
    if not is_frame(meta):
        return _exact(what, meta.name, rows) if _is_nullable(meta.dtype) else rows
    for name in meta.columns if names is None else names:
        if name in meta.columns and _is_nullable(meta[name].dtype):
            rows = _exact_in(what, name, rows)
    return rows


def _exact_in(what: str, name: Any, frame: Any) -> Any:
    if not has_meta(frame):
        changed = frame.copy(deep=False)
        changed[name] = _exact(what, name, frame[name])
        return changed
    if isinstance(name, str):  # other columns stay those that Dask may leave unread
        return frame.assign(**{name: _exact(what, name, frame[name])})
    meta = meta_of(frame).astype({name: meta_of(frame)[name].dtype.numpy_dtype})
    return frame.map_partitions(partial(_exact_in, what, name), meta=meta)


def _is_nullable(dtype: Any) -> bool:
    return not isinstance(dtype, np.dtype) and hasattr(dtype, "numpy_dtype") and dtype.kind in "iu"


def _exact(what: str, name: Any, column: Any) -> Any:
    """Return a column of Dask or pandas as integers of NumPy."""
    make = partial(_as_numpy, what, name)
    if not has_meta(column):
        return make(column)
    return column.map_partitions(make, meta=meta_of(column).astype(column.dtype.numpy_dtype))


def _as_numpy(what: str, name: Any, column: Any) -> Any:
    if not _is_nullable(column.dtype):  # an empty partition, or one of another dtype, which is refused later
        return column
    if missing := int(column.isna().sum()):
        raise ValueError(
            f"{missing:,} identifiers in column {name!r} of {what} are missing, and each row belongs to one. Leave "
            f"such rows out, with frame.dropna(subset=[{name!r}]), or fill them in."
        )
    return column.astype(column.dtype.numpy_dtype)
