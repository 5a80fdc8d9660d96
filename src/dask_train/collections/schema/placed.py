"""Names of columns by their place: which frame of the inputs, or of the targets, has which.

Names are put together as the values are, in dicts and tuples: a list for a frame or column, None for an array.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import is_
from typing import Any

from dask_train.collections.partition.form import is_frame, is_name
from dask_train.collections.schema.category import CategoryColumn, listed
from dask_train.collections.schema.column import FrameColumn
from dask_train.collections.schema.values import value_from_json, value_to_json

# A list of names, None, or a dict or tuple of such.
Names = Any
# The names that a model knows at one place, each with what it knows of that column.
Known = list[tuple[Any, FrameColumn | None]]


def names_of(features: Any) -> Names:
    """Return the names at each place where columns of one frame make the features, as ``features=`` says it."""
    if isinstance(features, Mapping):
        return {name: names_of(below) for name, below in features.items()}
    if features is None:
        return None
    return [features] if is_name(features) else list(features)


def mapped(value: Any, names: Names, change: Callable[[Any, Any], Any]) -> Any:
    """Return a structure of values, each changed by what ``names`` has at its place, which is None where it has none.

    A structure in which nothing changes is returned itself.
    """
    if isinstance(value, Mapping):
        by_key = names if isinstance(names, Mapping) else {}
        by_name = {name: mapped(below, by_key.get(name), change) for name, below in value.items()}
        return value if all(by_name[name] is below for name, below in value.items()) else by_name
    if isinstance(value, tuple | list):
        known = names if isinstance(names, tuple) and len(names) == len(value) else [None] * len(value)
        several = [mapped(*pair, change) for pair in zip(value, known, strict=True)]
        return value if all(map(is_, several, value)) else _like(value, several)
    return change(value, names if isinstance(names, list) else None)


def _like(value: Any, several: list[Any]) -> Any:
    """Return other values in a tuple, which may have names, or list of the same type."""
    make = getattr(type(value), "_make", type(value))
    return make(several)


def is_one(names: Names) -> bool:
    """Return whether there is one frame, column or array."""
    return names is None or isinstance(names, list)


def is_alike(value: Any, names: Names) -> bool:
    """Return whether values are put together as the names are."""
    if isinstance(value, Mapping):
        are_keys = isinstance(names, Mapping) and value.keys() == names.keys()
        return are_keys and all(is_alike(below, names[name]) for name, below in value.items())
    if isinstance(value, tuple | list):
        return isinstance(names, tuple) and len(names) == len(value) and all(map(is_alike, value, names))
    return is_one(names)


def unwrapped(names: Names) -> Names:
    """Return the names of the only frame, column or array, without what it is in; those of several as they are."""
    below = names
    while isinstance(below, Mapping | tuple) and len(below) == 1:
        (below,) = below.values() if isinstance(below, Mapping) else below
    return below if is_one(below) else names


def lists_in(names: Names) -> Iterator[list[Any]]:
    """Go through the names of each frame, in order."""
    if isinstance(names, list):
        yield names
    elif names is not None:
        for below in names.values() if isinstance(names, Mapping) else names:
            yield from lists_in(below)


def with_columns(names: Names, columns: Sequence[FrameColumn]) -> Names:
    """Return pairs in place of names, each with its column, of which some may lack.

    Columns are in the order of the names; or each is there once, also if it goes to several places.
    """
    if [name for each in lists_in(names) for name in each] == [column.name for column in columns]:
        left = iter(columns)
        return _each(names, lambda each: [(name, next(left)) for name in each])
    by_name: dict[Any, list[FrameColumn]] = {}
    for column in columns:
        by_name.setdefault(column.name, []).append(column)
    only = {name: several[0] for name, several in by_name.items() if len(several) == 1}
    return _each(names, lambda each: [(name, only.get(name)) for name in each])


def put(value: Any, names: Sequence[list[Any] | None]) -> Names:
    """Return names in the structure of the values that have them, which are gone through in order."""
    left = iter(names)
    return _put(value, left)


def _put(value: Any, left: Iterator[list[Any] | None]) -> Names:
    if isinstance(value, Mapping):
        return {name: _put(below, left) for name, below in value.items()}
    if isinstance(value, tuple | list):
        return tuple(_put(below, left) for below in value)
    return next(left)


def check_unique(what: str, columns: Sequence[FrameColumn]) -> dict[Any, FrameColumn]:
    """Return columns by name, where each name stands for one alone.

    Raises
    ------
    ValueError
        Two columns of one name differ in more than the dtype of numbers.
    """
    by_name: dict[Any, FrameColumn] = {}
    for column in columns:
        other = by_name.setdefault(column.name, column)
        if other != column and (isinstance(column, CategoryColumn) or type(other) is not type(column)):
            raise ValueError(
                f"The model was fitted with several columns {column.name!r} that differ, and which of them those of "
                f"{what} are is not known. Pass {what} in the same dict or tuple of frames as where the model was "
                "fitted, or fit it on columns of different names."
            )
    return by_name


def by_names(what: str, given: Sequence[Any], places: Any, *, is_strict: bool) -> Known | None:
    """Return what a model knows at the only place that has the names of a frame's columns, in any order.

    Parameters
    ----------
    what
        How errors call the data.
    given
        Names of the frame's columns.
    places
        What the model knows, as :func:`with_columns` returns it.
    is_strict
        Whether the model may not learn other columns.

    Raises
    ------
    ValueError
        There is no such place, or it is one of several that differ.
    """
    alone = unwrapped(places)
    known = [alone] if is_strict and isinstance(alone, list) else list(lists_in(places))
    same = [each for each in known if each is alone or {name for name, _ in each} == set(given)]
    if same and all(each == same[0] for each in same):
        return same[0]
    if known and (same or is_strict):
        raise ValueError(
            f"{what} has a frame with the columns {listed(given)}, and which of the frames that the model was fitted "
            f"with it stands for is not known. Pass {what} in the same dict or tuple of frames as there."
        )
    return None


def in_place(what: str, given: Sequence[Any], known: Known, others: Names, *, is_frame: bool) -> bool:
    """Check that the names at one place are those that a model knows there, and return whether the order is the same.

    Parameters
    ----------
    what
        How errors call the data.
    given
        Names of the frame's columns; of a column the only one, which may be any that the model does not know elsewhere.
    known
        What the model knows at that place.
    others
        All that it knows.
    is_frame
        Whether they are the columns of a frame.

    Raises
    ------
    ValueError
        One lacks; or the column is another one.
    """
    names = [name for name, _ in known]
    if not is_frame and len(names) == 1:
        elsewhere = [name for each in lists_in(others) for name in each if name is not None and name != names[0]]
        if given[0] in elsewhere:
            raise ValueError(
                f"{what} has column {given[0]!r} where the model was fitted with {names[0]!r}, and it knows both. Pass "
                "columns in the order, or by the names of inputs, with which the model was fitted."
            )
        return True
    if lacking := [name for name in names if name not in given]:
        raise ValueError(
            f"{what} has no column {listed(lacking)} where the model was fitted with {listed(names)}. It has "
            f"{listed(list(given))}. Pass frames with these columns, or rename them: frame.rename(columns={{...}})."
        )
    return list(given) == names


def alone(columns: Sequence[FrameColumn], names: Names) -> FrameColumn | None:
    """Return the only column that a model knows, of which the name does not count; None if it knows several."""
    is_alone = len(columns) == 1 and sum(map(len, lists_in(names))) < 2
    return columns[0] if is_alone else None


def only_of(columns: Sequence[FrameColumn], names: Names) -> Names:
    """Return names by their place, None where a column lacks, since there was an array."""
    known = {column.name for column in columns}
    return _each(names, lambda each: each if known.issuperset(each) else None)


def reordered(features: Any, names: Names) -> Any:
    """Return features, of which lists are in the order of a model that knows the same names at the same place."""
    if isinstance(features, Mapping) and isinstance(names, Mapping):
        return {name: reordered(below, names.get(name)) for name, below in features.items()}
    if features is None or isinstance(features, Mapping) or is_name(features) or not isinstance(names, list):
        return features
    return list(names) if set(features) == set(names) and len(features) == len(names) else features


def seen(meta: Any) -> list[Any]:
    """Return the names of a frame's columns, or of one column."""
    return list(meta.columns) if is_frame(meta) else [meta.name]


def to_json(names: Names) -> Any:
    """Return names as JSON holds them."""
    if isinstance(names, Mapping):
        return {"dict": {name: to_json(below) for name, below in names.items()}}
    if isinstance(names, tuple):
        return {"tuple": list(map(to_json, names))}
    return None if names is None else list(map(value_to_json, names))


def from_json(content: Any) -> Names:
    """Return the names that :func:`to_json` has written."""
    if content is None or isinstance(content, list):
        return None if content is None else list(map(value_from_json, content))
    if "dict" in content:
        return {name: from_json(below) for name, below in content["dict"].items()}
    return tuple(map(from_json, content["tuple"]))


def _each(names: Names, change: Callable[[list[Any]], Any]) -> Any:
    if isinstance(names, Mapping):
        return {name: _each(below, change) for name, below in names.items()}
    if isinstance(names, tuple):
        return tuple(_each(below, change) for below in names)
    return None if names is None else change(names)
