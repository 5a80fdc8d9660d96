"""What users pass as ``x`` for prediction: arrays, or one frame; and what its columns are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dask_train.collections.blocks import with_whole_rows
from dask_train.collections.pieces.form import chosen, is_frame, open_form
from dask_train.collections.pieces.plan import make_plan
from dask_train.data.columns import Column
from dask_train.fit_roles.layout import Layout


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """Rows to predict, before anything of them is computed.

    Attributes
    ----------
    layout
        Where inputs lie among the columns.
    columns
        What each is; of a frame that stays one, none.
    arrays
        Dask arrays, each with its rows whole.
    frame
        A Dask frame or column in place of arrays, with just the columns that are needed.
    plan
        How a partition of the frame becomes arrays; None where it stays as it is.
    """

    layout: Layout
    columns: tuple[Column, ...] = ()
    arrays: tuple[Any, ...] = ()
    frame: Any = None
    plan: Mapping[str, Any] | None = None


def inputs_of(what: str, x: Any, *, features: str | Sequence[str] | None, as_frames: bool) -> Inputs:
    """What a user passed; nothing is computed.

    Parameters
    ----------
    what
        How errors call it.
    x
        As :func:`~dask_train.predict` takes it.
    features
        Columns of a frame.
    as_frames
        Whether the model takes frames as they are.

    Raises
    ------
    TypeError, ValueError
        It is something else, columns can't be numbers, names are unknown, or row counts differ.
    """
    if hasattr(x, "iloc") or _is_dask_frame(x):
        return _of_frame(what, x, features, as_frames=as_frames)
    if features is not None:
        raise ValueError(f"features={features!r} names columns, and {what} is a {type(x).__name__}, which has none.")
    layout, values = Layout.of(x)
    if not values:
        raise ValueError(f"{what} is empty; pass arrays or a frame.")
    arrays = with_whole_rows(what, values)
    for array in arrays:
        if array.dtype.hasobject and not as_frames:
            raise TypeError(f"{what} has an array of {array.dtype}; make it numbers, with astype for instance.")
    columns = tuple(Column(dtype=array.dtype.str, row_shape=tuple(map(int, array.shape[1:]))) for array in arrays)
    return Inputs(layout=layout, columns=columns, arrays=arrays)


def _of_frame(what: str, x: Any, features: Any, *, as_frames: bool) -> Inputs:
    if not _is_dask_frame(x):
        import dask.dataframe as dd

        x = dd.from_pandas(x, npartitions=1, sort=False)
    if features is not None and not is_frame(x):
        raise ValueError(f"features={features!r} names columns, and {what} is one column. Leave features out.")
    if is_frame(x):
        one, several, _ = chosen(what, list(x.columns), features, None)
        x = x[one] if several is None else x if several == list(x.columns) else x[several]
    if as_frames:
        return Inputs(layout=Layout.of_batch(1), frame=x)
    plan = make_plan(what, open_form(what, x._meta))
    (read,) = plan["reads"]
    found = read["columns"] or []
    if any(column["how"] in {"arrow", "objects"} for column in found):
        raise TypeError(
            f"Column {found[0]['name']!r} of {what} holds lists or objects, whose shape is not known before they are "
            "computed. Make an array of it first, such as with dask.array.from_delayed."
        )
    column = Column(
        dtype=np.dtype(read["matrix"] or found[0]["dtype"]).str,
        row_shape=(len(found),) if read["matrix"] else (),
    )
    return Inputs(layout=Layout.of_batch(1), columns=(column,), frame=x, plan=plan)


def _is_dask_frame(value: Any) -> bool:
    return any(kind.__module__.startswith("dask.dataframe") for kind in type(value).__mro__) and hasattr(
        getattr(value, "_meta", None), "iloc"
    )
