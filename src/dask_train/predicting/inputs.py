"""What users pass as ``x`` for prediction: arrays, or one frame; and what its columns are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dask_train.collections.bags import BagRows
from dask_train.collections.blocks import with_whole_rows
from dask_train.collections.frames import in_order, in_own_order
from dask_train.collections.partition.form import Picks, is_frame, open_form, resolved
from dask_train.collections.partition.plan import make_plan
from dask_train.collections.schema.conformer import Conformer, unknown_categories
from dask_train.collections.schema.conforming import Pairs, conformed, matched
from dask_train.collections.schema.frame_schema import FrameSchema, names_in
from dask_train.collections.source import OwnRows
from dask_train.compat.dask import has_meta, meta_of
from dask_train.data.columns import TEXT, Column, Columns
from dask_train.data.structure import filled, leaves
from dask_train.data.text import may_be_text
from dask_train.fitting.data import columns_for, fit_data, places_of
from dask_train.shared_data.segments import is_data_set


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """Rows to predict, before anything of them is computed.

    Attributes
    ----------
    columns
        What each is, and where inputs lie; nothing is known of a frame that stays one.
    arrays
        Dask arrays, each with its rows whole.
    frame
        A Dask frame or column in place of arrays, with just the columns that are needed.
    plan
        How a partition of the frame becomes each array: a :class:`~dask_train.collections.partition.plan.Read`, or the
        names of columns of ``"text"``. None if the frame stays as it is.
    """

    columns: Columns
    arrays: tuple[Any, ...] = ()
    frame: Any = None
    plan: Sequence[Mapping[str, Any]] | None = None


def inputs_of(
    what: str,
    x: Any,
    *,
    features: Any,
    as_frames: bool,
    takes_text: bool = False,
    model: Any = None,
    schema: FrameSchema | None = None,
) -> Inputs:
    """Return what a user passed; nothing is computed.

    Parameters
    ----------
    what
        How errors call it.
    x
        As :func:`~dask_train.predict` takes it; a bag as :func:`~dask_train.predicting.bags.as_rows` has made it.
    features
        Columns of a frame or a bag.
    as_frames
        Whether the model takes frames as they are.
    takes_text
        Whether it takes arrays of text.
    model
        A network, whose inputs may name columns.
    schema
        What the model knows of the columns of a frame, which is made like that.

    Raises
    ------
    TypeError, ValueError
        It is something else, columns can't be numbers, names are unknown, or row counts differ.
    """
    if isinstance(x, OwnRows):
        rows = x.to_dask()
        x = rows[0] if isinstance(rows, tuple) else rows  # labels are not predicted from
    if is_data_set(x):
        x, features = _of_data_set(what, x, features, Conformer(schema, learns=False, coded=not as_frames)), None
    bag = x if isinstance(x, BagRows) else None
    x = x if bag is None else bag.frame
    if hasattr(x, "iloc") or _is_dask_frame(x):
        x, features, known = _as_known(what, _as_dask(x), features, schema, as_frames=as_frames)
        if bag is None or not bag.holds_arrays(list(names_in(features)) or list(x.columns)):
            return _of_frame(what, x, features, as_frames=as_frames, takes_text=takes_text, model=model, known=known)
        x, features = _arrays_of(what, bag, x, features, model), None
    if features is not None:
        raise ValueError(f"features={features!r} names columns, and {what} is a {type(x).__name__}, which has none.")
    places, values = Columns.of(x)
    if not values:
        raise ValueError(f"{what} is empty; pass arrays or a frame.")
    arrays = with_whole_rows(what, values)
    for array in arrays:
        if may_be_text(array.dtype) and not (as_frames or takes_text):
            raise TypeError(
                f"{what} has an array of {array.dtype}, text or objects, which Keras models take on TensorFlow alone. "
                "Make it numbers, with astype for instance."
            )
    columns = places.with_rows(
        [
            Column(
                dtype=TEXT if array.dtype.kind == "T" or (takes_text and may_be_text(array.dtype)) else array.dtype.str,
                row_shape=tuple(map(int, array.shape[1:])),
            )
            for array in arrays
        ]
    )
    return Inputs(columns=columns, arrays=arrays)


def _of_data_set(what: str, x: Any, features: Any, like: Conformer) -> Any:
    """Return inputs that lie in shared memory as a structure of Dask arrays of them."""
    columns = fit_data(what, x, None, None, features=features, like=like).columns
    return filled(columns.features, leaves(x.segments.arrays()).__getitem__)


def _arrays_of(what: str, bag: BagRows, x: Any, features: Any, model: Any) -> Any:
    """Return columns of a bag, of which some hold arrays, as a structure of Dask arrays."""
    picks: list[Any] = []
    places = places_of(columns_for(model, x, None, features, None)[0], picks)
    return filled(places, bag.arrays(what, x, picks).__getitem__)


def _as_dask(x: Any) -> Any:
    if _is_dask_frame(x):
        return x
    import dask.dataframe as dd

    return dd.from_pandas(x, npartitions=1, sort=False)


def _as_known(
    what: str, x: Any, features: Any, schema: FrameSchema | None, *, as_frames: bool
) -> tuple[Any, Any, list[Any]]:
    """Return the frame with the model's columns, the features in its order, and the names of such columns."""
    if schema is None:
        return x, features, []
    pairs: Pairs = []
    if is_frame(x):
        features, pairs = matched(what, schema, features, list(x.columns))
    elif len(schema.columns) == 1:
        pairs = [(x.name, schema.columns[0])]
    return conformed(what, x, pairs, coded=not as_frames), features, [name for name, _ in pairs]


def _of_frame(
    what: str, x: Any, features: Any, *, as_frames: bool, takes_text: bool, model: Any, known: Sequence[Any]
) -> Inputs:
    if features is not None and not is_frame(x):
        raise ValueError(f"features={features!r} names columns, and {what} is one column. Leave features out.")
    if as_frames:
        return Inputs(columns=Columns(features=0), frame=_chosen(what, x, features))
    if not is_frame(x):
        one, column = _read_of(what, meta_of(x), None, takes_text=takes_text)
        _check_codes(what, [one], known)
        return Inputs(columns=Columns.of_batch(1, (column,)), frame=x, plan=[one])
    features, _ = columns_for(model, x, None, features, None)
    picks: list[Any] = []
    places = places_of(features, picks)
    several = resolved(what, list(x.columns), picks)
    needed = list(dict.fromkeys(name for names, _ in several for name in names))
    plans = [
        _read_of(what, meta_of(x), names if matrix else names[0], takes_text=takes_text) for names, matrix in several
    ]
    _check_codes(what, [one for one, _ in plans], known)
    return Inputs(
        columns=Columns(columns=tuple(column for _, column in plans), features=places),
        frame=in_own_order(x, needed),
        plan=[one for one, _ in plans],
    )


def _check_codes(what: str, plans: Sequence[Mapping[str, Any]], known: Sequence[Any]) -> None:
    """Check that codes are of categories that the model was fitted with.

    Raises
    ------
    ValueError
        Those of a column are not known.
    """
    for column in (column for one in plans for column in one.get("columns") or ()):
        if column["how"] == "codes" and column["name"] not in known:
            raise unknown_categories(what, column["name"])


def _chosen(what: str, x: Any, features: Any) -> Any:
    """Return the frame with some columns alone, or one of them."""
    if not is_frame(x):
        return x
    if isinstance(features, Mapping):
        raise TypeError(f"features={features!r} is for models of several inputs; name one column, or a list of them.")
    ((names, matrix),) = resolved(what, list(x.columns), [features])
    if not matrix:
        return x[names[0]]
    return in_order(x, names)


def _read_of(what: str, meta: Any, names: Any, *, takes_text: bool) -> tuple[Mapping[str, Any], Column]:
    """Return how columns of a frame become an array, and what that is; of one column ``names`` is None."""
    matrix = names is not None and is_frame(meta[names])
    picks = None if names is None else Picks(arrays=[names], is_tuple=True)
    (read,) = make_plan(what, open_form(what, meta, picks))["reads"]
    found = read["columns"] or []
    if any(column["how"] in {"arrow", "objects"} for column in found):
        raise TypeError(
            f"Column {found[0]['name']!r} of {what} holds lists or objects, whose shape is not known before they are "
            "computed. Make an array of it first, such as with dask.array.from_delayed."
        )
    if any(column["how"] == "text" for column in found):
        if takes_text:
            return {"text": names}, Column(dtype=TEXT, row_shape=(len(found),) if matrix else ())
        raise TypeError(
            f"Column {found[0]['name']!r} of {what} is text, which Keras models take on TensorFlow alone. Leave it "
            "out, or make codes of it: .astype('category'), of a Dask frame with .cat.as_known()."
        )
    dtype = np.dtype(read["matrix"] or found[0]["dtype"]).str
    return read, Column(dtype=dtype, row_shape=(len(found),) if read["matrix"] else ())


def _is_dask_frame(value: Any) -> bool:
    return (
        any(kind.__module__.startswith("dask.dataframe") for kind in type(value).__mro__)
        and has_meta(value)
        and hasattr(meta_of(value), "iloc")
    )
