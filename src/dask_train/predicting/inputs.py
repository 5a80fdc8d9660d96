"""Rows that models predict from, as Dask arrays or as one Dask frame; nothing of them is computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from dask_train.collections.bags import BagRows
from dask_train.collections.blocks import with_whole_rows
from dask_train.collections.frames import FrameSource, in_order, is_dask_frame
from dask_train.collections.partition.form import is_frame, resolved
from dask_train.collections.schema.conformer import Conformer
from dask_train.collections.schema.frame_schema import FrameSchema, names_in
from dask_train.collections.schema.unknown import check_no_categories
from dask_train.collections.source import OwnRows
from dask_train.compat.dask import meta_of
from dask_train.data.columns import TEXT, Column, Columns
from dask_train.data.text import may_be_text
from dask_train.inputs.data import InputData
from dask_train.inputs.making import input_data, of_names
from dask_train.inputs.published import in_shared_memory
from dask_train.shared_data.segments import is_data_set
from dask_train.spelling import named


def rows_to_predict(
    what: str,
    x: Any,
    *,
    features: Any,
    schema: FrameSchema | None,
    as_frames: bool,
    finds_categories: bool = True,
    takes_text: bool = False,
    model: Any = None,
) -> InputData:
    """Return rows to predict: Dask arrays, each with its rows whole; or a Dask frame or column.

    Parameters
    ----------
    what
        How errors call it.
    x
        As :func:`~dask_train.predict` takes it; a bag as :func:`~dask_train.predicting.bags.as_rows` has made it.
    features
        Columns of a frame or a bag.
    schema
        What the model knows of the columns of a frame, which is made like that.
    as_frames
        Whether the model takes frames as they are.
    finds_categories
        Whether a model that takes frames finds categories by value, also without a schema.
    takes_text
        Whether it takes arrays of text.
    model
        A network, whose inputs may name columns.

    Raises
    ------
    TypeError, ValueError
        It is something else, columns can't be numbers, names are unknown, or row counts differ.
    """
    x, _ = as_collections(x, None)  # labels are not predicted from
    like = Conformer(schema, learns=as_frames, coded=not as_frames)
    if is_data_set(x):
        (x, *_), features = in_shared_memory(input_data(what, x, None, None, features=features, like=like)), None
    bag = x if isinstance(x, BagRows) else None
    x = x if bag is None else bag.frame
    if hasattr(x, "iloc") or is_dask_frame(x):
        if features is not None and not is_frame(x):
            raise ValueError(f"features={features!r} names columns, and {what} is one column. Leave features out.")
        known = None if schema is None else schema.features
        if bag is not None and bag.holds_arrays(list(names_in(features)) or list(names_in(known)) or list(x.columns)):
            (x, *_), features = of_bag(bag, of_names(what, x, features, None, None, like, model=model)), None
        elif as_frames:
            x, features = as_known(_as_dask(x), features, schema, finds_categories=finds_categories)
            return InputData(value=_chosen(what, x, features), columns=Columns(features=0))
        else:
            return _of_frame(what, _as_dask(x), features, like, model, takes_text=takes_text)
    if features is not None:
        raise ValueError(f"features={features!r} names columns, and {what} is a {type(x).__name__}, which has none.")
    return _of_arrays(what, x, any_text=as_frames, takes_text=takes_text)


def check_classes(x: Any, known: FrameSchema | None) -> None:
    """Check that labels of files mean what the model has learnt.

    Raises
    ------
    ValueError
        They number other classes.
    """
    if isinstance(x, OwnRows):
        Conformer(known).classes("x", x.classes)


def as_collections(x: Any, y: Any) -> tuple[Any, Any]:
    """Return inputs and targets, those of files as Dask arrays.

    Raises
    ------
    ValueError
        There are targets besides.
    """
    if not isinstance(x, OwnRows):
        return x, y
    if y is not None:
        raise ValueError(f"x is a {type(x).__name__}, which has its labels. Leave y out.")
    rows = x.to_dask()
    return rows if isinstance(rows, tuple) else (rows, None)


def of_bag(bag: BagRows, data: InputData) -> tuple[Any, Any, Any]:
    """Return features, targets and weights of a bag, as Dask arrays of unknown length."""
    assert isinstance(data.opened, FrameSource)
    return data.columns.pack(bag.arrays(data.opened))


def as_known(
    x: Any, features: Any, schema: FrameSchema | None, *, others: Sequence[Any] = (), finds_categories: bool
) -> tuple[Any, Any]:
    """Return a frame for a model that takes frames, as the model knows it; and the features in its order.

    Parameters
    ----------
    x
        A frame or column; all else comes back as it is.
    features
        As the user names them.
    schema
        Of the model. None: it has none.
    others
        Names of columns that are no features, such as the label; what names no column does not count.
    finds_categories
        Whether a model without a schema finds categories by value.

    Raises
    ------
    TypeError, ValueError
        The model was fitted with other columns or categories.
    """
    if schema is None and not finds_categories:
        check_no_categories(named("x"), x, features, others)
    if schema is None or not hasattr(meta_of(x), "iloc"):
        return x, features
    like = Conformer(schema, coded=False)
    if not is_frame(x):
        return like.inputs(named("x"), x), features
    return like.named(named("x"), x, features, [name for name in others if name in x.columns])


def _as_dask(x: Any) -> Any:
    """Return a frame or column of pandas as one of Dask; one of Dask as it is.

    Raises
    ------
    ValueError
        It has an index of several levels, which a Dask frame, as predictions are, can't have.
    """
    if is_dask_frame(x):
        return x
    if x.index.nlevels > 1:
        raise ValueError(
            f"{named('x')} has an index of {x.index.nlevels} levels, which neither Dask's frames nor predictions can "
            "have. Pass x.reset_index(), with features= to name the columns that the model takes, or "
            "x.reset_index(drop=True)."
        )
    import dask.dataframe as dd

    return dd.from_pandas(x, npartitions=1, sort=False)


def _chosen(what: str, x: Any, features: Any) -> Any:
    """Return the frame with some columns alone, or one of them."""
    if not is_frame(x):
        return x
    if isinstance(features, Mapping):
        raise TypeError(f"features={features!r} is for models of several inputs; name one column, or a list of them.")
    ((names, matrix),) = resolved(what, list(x.columns), [features])
    return in_order(x, names) if matrix else x[names[0]]


def _of_frame(what: str, x: Any, features: Any, like: Conformer, model: Any, *, takes_text: bool) -> InputData:
    """Return a frame, of which a partition becomes arrays when it is predicted."""
    if is_frame(x):
        data = of_names(what, x, features, None, None, like, model=model)
    else:
        data = input_data(what, x, None, None, like=like)
    source = data.source(what)
    assert isinstance(source, FrameSource)
    for column in (column for one in source.plan["reads"] for column in one["columns"][:1]):
        if column["how"] in {"arrow", "objects"}:
            raise TypeError(
                f"Column {column['name']!r} of {what} holds lists or objects, whose shape is not known before they are "
                "computed. Make an array of it first, such as with dask.array.from_delayed."
            )
        if column["how"] == "text" and not takes_text:
            raise TypeError(
                f"Column {column['name']!r} of {what} is text, which Keras models take on TensorFlow alone. Leave it "
                "out, or make codes of it: .astype('category'), of a Dask frame with .cat.as_known()."
            )
    return replace(data, value=source.frames[0], opened=source, columns=data.columns.with_rows(source.columns or ()))


def _of_arrays(what: str, x: Any, *, any_text: bool, takes_text: bool) -> InputData:
    places, values = Columns.of(x)
    if not values:
        raise ValueError(f"{what} is empty; pass arrays or a frame.")
    arrays = with_whole_rows(what, values)
    for array in arrays:
        if may_be_text(array.dtype) and not (any_text or takes_text):
            raise TypeError(
                f"{what} has an array of {array.dtype}, text or objects, which Keras models take on TensorFlow alone. "
                "Make it numbers, with astype for instance."
            )
    columns = [
        Column(
            dtype=TEXT if array.dtype.kind == "T" or (takes_text and may_be_text(array.dtype)) else array.dtype.str,
            row_shape=tuple(map(int, array.shape[1:])),
        )
        for array in arrays
    ]
    return InputData(value=arrays, columns=places.with_rows(columns))
