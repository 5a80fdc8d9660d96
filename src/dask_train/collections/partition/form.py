"""How data is put together: a dict, a tuple, or one array or frame; and what is picked of its columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, TypedDict

from dask_train.spelling import passed


class Picks(TypedDict):
    """Columns that are chosen by their names.

    Keys
    ----
    arrays
        What makes each array of a batch: a name for a column, a list of names for a matrix, None for a matrix of all
        columns that the others don't name.
    is_tuple
        Whether batches are tuples, also of one.
    """

    arrays: list[Any]
    is_tuple: bool


class PartitionForm(TypedDict):
    """Data, taken apart.

    Keys
    ----
    names
        Of the values, where they were in a dict.
    is_tuple
        Whether they were in a tuple or list.
    values
        The arrays, frames and columns.
    picks
        What is still to be picked, of the one value, which is a frame then.
    """

    names: tuple[str, ...] | None
    is_tuple: bool
    values: list[Any]
    picks: Picks | None


def open_form(what: str, data: Any, picks: Picks | None = None) -> PartitionForm:
    # Take apart what a user passed, or what a partition of it is.
    if picks is not None:
        return _picked_form(what, data, picks)
    if isinstance(data, Mapping):
        _check_some(what, data)
        ((names, _),) = resolved(what, list(map(str, data)), [None])  # as text: of 1 and "1" one would stand for both
        return _form(tuple(names), False, list(data.values()))
    if isinstance(data, tuple | list):
        _check_some(what, data)
        return _form(None, True, list(data))
    return _form(None, False, [data])


def _picked_form(what: str, data: Any, picks: Picks) -> PartitionForm:
    if is_frame(data):
        return _form(None, False, [data], picks)
    if not isinstance(data, Mapping):
        names = [pick for pick in picks["arrays"] if pick is not None]
        raise ValueError(
            f"{str(names)[1:-1]} name columns, and {what} is a {type(data).__name__}, which has none. Leave them out, "
            "or pass a frame."
        )
    values = []
    for names, _ in resolved(what, list(data), picks["arrays"]):
        if len(names) > 1:
            raise ValueError(
                f"features of {what} are {names}, and one entry of a dict makes the features. Name one; or stack the "
                "arrays, with numpy.stack(arrays, axis=1); or leave out features and label: batches are dicts then."
            )
        values.append(data[names[0]])
    return _form(None, picks["is_tuple"], values)


def resolved(what: str, known: Sequence[Any], arrays: Sequence[Any]) -> list[tuple[list[Any], bool]]:
    # Give of each array that is picked its columns, and whether they make a matrix.
    named = [[] if pick is None else [pick] if is_name(pick) else list(pick) for pick in arrays]
    left = [name for name in known if not any(name in names for names in named)]
    pairs = []
    for pick, picked in zip(arrays, named, strict=True):
        names = left if pick is None else picked
        for name in names:
            if name not in known:
                raise ValueError(_unknown(what, name, known))
            if names.count(name) > 1 or known.count(name) > 1:
                raise ValueError(f"{what} names {name!r} more than once. Name each column once, or rename one of them.")
        if not names:
            raise ValueError(f"{what} has no column left for the features. Name at least one in features.")
        pairs.append((names, pick is None or not is_name(pick)))
    return pairs


def is_name(value: Any) -> bool:
    # Whether it names one column; those of pandas may be anything that is no collection.
    return isinstance(value, str) or not isinstance(value, Iterable)


def picks_of(what: str, features: Any, label: Any) -> Picks | None:
    """Return what ``features=`` and ``label=`` pick, both perhaps None.

    Raises
    ------
    TypeError, ValueError
        The label is not one name, or is one of the features too.
    """
    if features is None and label is None:
        return None
    if label is not None and not is_name(label):
        raise TypeError(
            f"{passed('label', label)} of {what} is no name. Pass one; several make targets with dt.fit only."
        )
    features = features if features is None or is_name(features) else list(features)
    if label is not None and features is not None and label in ([features] if is_name(features) else features):
        raise ValueError(f"{label!r} of {what} is the label and one of the features too. Take it out of features.")
    return {"arrays": [features, *([] if label is None else [label])], "is_tuple": label is not None}


def chosen(what: str, known: Sequence[Any], features: Any, label: Any) -> tuple[Any, list[Any] | None, Any]:
    # Check names against those there are; see :func:`picks_of` and :func:`resolved` for errors.
    # The answer: the feature if it is one name, else None; the features if they are a list, else None; the label.
    picks = picks_of(what, features, label) or {"arrays": [None], "is_tuple": False}
    (names, is_matrix), *_ = resolved(what, list(known), picks["arrays"])
    return (None, names, label) if is_matrix else (names[0], None, label)


def is_frame(value: Any) -> bool:
    # Whether it is a table of Dask or pandas, with columns by name.
    return hasattr(value, "columns") and getattr(value, "ndim", 0) == 2


def is_series(value: Any) -> bool:
    # Whether it is one column of pandas.
    return hasattr(value, "iloc") and value.ndim == 1


def _form(names: Any, is_tuple: bool, values: list[Any], picks: Picks | None = None) -> PartitionForm:
    return {"names": names, "is_tuple": is_tuple, "values": values, "picks": picks}


def _check_some(what: str, data: Any) -> None:
    if not len(data):
        raise ValueError(f"{what} is empty; pass arrays or frames.")


def _unknown(what: str, name: Any, known: Sequence[Any]) -> str:
    near = get_close_matches(str(name), list(map(str, known)))
    hint = f"The nearest: {str(near)[1:-1]}. " if near else ""
    more = f" and {len(known) - 20} more" if len(known) > 20 else ""
    return f"{what} has no column {name!r}. {hint}It has {str(list(known[:20]))[1:-1]}{more}."
