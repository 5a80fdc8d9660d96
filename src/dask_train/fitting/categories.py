"""Categories of columns, of which models learn the codes: other frames have to have the same, in the same order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from reprlib import repr as short
from typing import Any
from weakref import WeakKeyDictionary

from dask_train.collections.partition.form import is_frame

# Of columns, by their names.
Categories = Mapping[Any, list[Any]]

# What models of this process have been fitted with. A saved model does not keep it.
_LEARNT: WeakKeyDictionary[Any, dict[Any, list[Any]]] = WeakKeyDictionary()


def categories_of(values: Sequence[Any], names: Sequence[Any] | None = None) -> dict[Any, list[Any]]:
    """Categories of columns, all or some, of frames of Dask or pandas; other values have none."""
    metas = [getattr(value, "_meta", value) for value in values]
    columns = {meta.name: meta for meta in metas if hasattr(meta, "iloc") and not is_frame(meta)}
    for meta in filter(is_frame, metas):
        columns |= {name: meta[name] for name in meta.columns if names is None or name in names}
    return {name: list(each.cat.categories) for name, each in columns.items() if str(each.dtypes) == "category"}


def check_categories(what: str, found: Categories, known: Categories, of: str = "the data") -> None:
    """See that columns of the same name have the same categories.

    Parameters
    ----------
    what, of
        How errors call those that are looked at, and those that are known.

    Raises
    ------
    ValueError
        They have others, or in another order.
    """
    for name, theirs in found.items():
        mine = known.get(name, theirs)
        if mine != theirs:
            raise ValueError(
                f"Column {name!r} of {what} has the categories {short(theirs)}, and that of {of} {short(mine)}, so the "
                "same codes would mean other values. Give both the same ones, with .cat.set_categories(...)."
            )


def check_learnt(what: str, model: Any, found: Categories) -> None:
    """See that columns have the categories that this model was fitted with in this process, if it was.

    Raises
    ------
    ValueError
        They have others, or in another order.
    """
    if found:
        check_categories(what, found, _LEARNT.get(model, {}), "the data that the model was fitted with")


def note_learnt(model: Any, categories: Categories) -> None:
    """Remember what a model has been fitted with, for as long as it lives."""
    if categories:
        _LEARNT[model] = {**_LEARNT.get(model, {}), **categories}
