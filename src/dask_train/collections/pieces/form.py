"""How data is put together: a dict, a tuple, or one array or frame; and what features= and label= pick of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, TypedDict


class Form(TypedDict):
    """Data, taken apart.

    Keys
    ----
    names
        Of the values, where they were in a dict.
    is_tuple
        Whether they were in a tuple or list.
    values
        The arrays, frames and columns.
    features, label
        What is still to be picked, of the one value, which is a frame then.
    """

    names: tuple[str, ...] | None
    is_tuple: bool
    values: list[Any]
    features: Any
    label: Any


def open_form(what: str, data: Any, features: Any = None, label: Any = None) -> Form:
    """Take apart what a user passed, or what a partition of it is.

    Raises
    ------
    TypeError, ValueError
        There is nothing, or ``features`` and ``label`` don't fit it.
    """
    selects = features is not None or label is not None
    check_label(what, label)
    if isinstance(data, Mapping):
        if not selects:
            _check_some(what, data)
            return _form(tuple(map(str, data)), False, list(data.values()))
        entry, label = _entries(what, data, features, label)
        return _form(None, label is not None, [data[name] for name in (entry, label) if name is not None])
    if selects and not is_frame(data):
        raise ValueError(
            f"features={features!r} and label={label!r} name columns, and {what} is a {type(data).__name__}, which has "
            "none. Leave them out, or pass a frame or a dict."
        )
    if isinstance(data, tuple | list):
        _check_some(what, data)
        return _form(None, True, list(data))
    return _form(None, False, [data], features, label)


def chosen(what: str, known: Sequence[Any], features: Any, label: Any) -> tuple[Any, list[Any] | None, Any]:
    """Check names against those there are.

    Returns
    -------
    one, several, label
        The feature where it is one name, else None; the features where they are a list, else None; the label.

    Raises
    ------
    ValueError
        A name is unknown, occurs twice, or is both a feature and the label; or there is no feature.
    """
    known = list(known)
    single = features is not None and (isinstance(features, str) or not isinstance(features, Iterable))
    if features is None:
        several = [name for name in known if label is None or name != label]
    else:
        several = [features] if single else list(features)
    for name in (*several, *([] if label is None else [label])):
        if name not in known:
            raise ValueError(_unknown(what, name, known))
        if several.count(name) > 1 or known.count(name) > 1:
            raise ValueError(f"{what} names {name!r} more than once. Name each column once, or rename one of them.")
    if label is not None and label in several:
        raise ValueError(f"{label!r} of {what} is the label and one of the features too. Take it out of features.")
    if not several:
        raise ValueError(f"{what} has no column left for the features. Name at least one in features.")
    return (several[0], None, label) if single else (None, several, label)


def check_label(what: str, label: Any) -> None:
    """Refuse a label that is not one name."""
    if label is not None and not isinstance(label, str) and isinstance(label, Iterable):
        raise TypeError(f"label={label!r} of {what} is no name. Pass one; a label of several columns can't be yet.")


def is_frame(value: Any) -> bool:
    """Whether it is a table of Dask or pandas, with columns by name."""
    return hasattr(value, "columns") and getattr(value, "ndim", 0) == 2


def is_series(value: Any) -> bool:
    """Whether it is one column of pandas."""
    return hasattr(value, "iloc") and value.ndim == 1


def _form(names: Any, is_tuple: bool, values: list[Any], features: Any = None, label: Any = None) -> Form:
    return {"names": names, "is_tuple": is_tuple, "values": values, "features": features, "label": label}


def _entries(what: str, data: Mapping[Any, Any], features: Any, label: Any) -> tuple[Any, Any]:
    one, several, label = chosen(what, list(data), features, label)
    if several is not None and len(several) > 1:
        raise ValueError(
            f"features of {what} are {several}, and one entry of a dict makes the features. Name one; or leave out "
            "features and label, so that batches are dicts; or stack the arrays, with numpy.stack(arrays, axis=1)."
        )
    return one if several is None else several[0], label


def _check_some(what: str, data: Any) -> None:
    if not len(data):
        raise ValueError(f"{what} is empty; pass arrays or frames.")


def _unknown(what: str, name: Any, known: Sequence[Any]) -> str:
    near = get_close_matches(str(name), list(map(str, known)))
    hint = f"The nearest: {', '.join(map(repr, near))}. " if near else ""
    more = f" and {len(known) - 20} more" if len(known) > 20 else ""
    return f"{what} has no column {name!r}. {hint}It has {', '.join(map(repr, known[:20]))}{more}."
