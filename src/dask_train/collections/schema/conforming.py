"""Frames made like the one that a model was fitted with: columns matched by name, categories by value."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from dask_train.collections.partition.form import is_frame, is_name
from dask_train.collections.schema.category import CategoryColumn, check_none_missing, listed
from dask_train.collections.schema.column import FrameColumn
from dask_train.collections.schema.frame_schema import FrameSchema, names_in
from dask_train.compat.dask import has_meta, meta_of
from dask_train.spelling import by_caller, named, passed

# Names of columns of a frame, each with what the model knows of it.
Pairs = Sequence[tuple[Any, FrameColumn]]


def matched(what: str, schema: FrameSchema, features: Any, known: Sequence[Any]) -> tuple[Any, Pairs]:
    """Find the columns of a model in a frame, by name.

    Parameters
    ----------
    what
        How errors call the frame.
    schema
        Of the model.
    features
        As the user names them; None for those that the model was fitted with.
    known
        The names of the frame's columns.

    Returns
    -------
    features
        In the order in which the model takes them.
    pairs
        Columns of the frame and of the model.

    Raises
    ------
    ValueError
        They are others than those that the model was fitted with.
    """
    columns, own = {one.name: one for one in schema.columns}, schema.features
    if own is None:
        names = list(known) if features is None else list(names_in(features))
        return features, [(name, columns[name]) for name in names if name in columns]
    by_input = isinstance(own, Mapping) and isinstance(features, Mapping)  # the same names may go to other inputs
    if features is not None and (by_input or set(names_in(features)) != set(names_in(own))):
        pairs: list[tuple[Any, FrameColumn]] = []
        renamed = _renamed(what, own, features, columns, pairs)
        if renamed != own:
            return renamed, pairs
    if lacking := [name for name in columns if name not in known]:
        raise ValueError(
            f"{what} has no column {listed(lacking)}, which the model was fitted with. It has {listed(list(known))}. "
            + by_caller(
                "Pass a frame with all of these columns, or rename them: frame.rename(columns={...}).",
                "Write them there, by these names.",
            )
        )
    return own, list(columns.items())


def _renamed(what: str, own: Any, features: Any, columns: Mapping[Any, FrameColumn], pairs: list[Any]) -> Any:
    """Match structures whose names differ: a single name says which column it stands for, a list does not."""
    if features is None or (_is_list(own) and _is_list(features) and set(own) == set(features)):
        pairs += [(name, columns[name]) for name in names_in(own)]
        return own
    if isinstance(own, Mapping) and isinstance(features, Mapping) and set(own) == set(features):
        return {name: _renamed(what, own[name], features[name], columns, pairs) for name in own}
    structures = (own, features)
    if not any(isinstance(each, Mapping) for each in structures) and len({*map(tuple, map(names_in, structures))}) == 1:
        pairs += [(name, columns[name]) for name in names_in(own)]  # a name, and a list of it alone
        return own
    if is_name(own) and is_name(features):
        pairs.append((features, columns[own]))
        return features
    raise ValueError(
        f"{passed('features', features)} of {what}, and the model was fitted with {own!r}, so which column means what "
        f"is not known. Leave {named('features')} out; where columns have other names now, "
        + by_caller("rename them: frame.rename(columns={...}).", "write them by these.")
    )


def _is_list(structure: Any) -> bool:
    return not (isinstance(structure, Mapping) or is_name(structure))


def conformed(what: str, rows: Any, pairs: Iterable[tuple[Any, FrameColumn]], *, coded: bool) -> Any:
    """Return a frame, or a column, whose columns are as the model knows them: of pandas at once, of Dask lazily.

    Parameters
    ----------
    what
        How errors call it.
    rows
        Of Dask or pandas.
    pairs
        Its columns that count; of a column the only one.
    coded
        Whether the model takes codes in place of categories, among which there is none for a missing one.

    Raises
    ------
    TypeError, ValueError
        A column can't hold the same values; or a value is unknown or missing, of Dask in the task.
    """
    for name, column in pairs:
        rows = _each(rows, name, partial(_conformed_column, what, column, coded))
    return rows


def _conformed_column(what: str, known: FrameColumn, coded: bool, column: Any) -> Any:
    try:
        return known.conformed(what, column, coded=coded)
    except TypeError:
        if has_meta(column) or len(column):
            raise
        return known.without_rows(column)  # whose dtype tells nothing: that of a bag's empty partition is float64


def without_missing_labels(what: str, rows: Any, names: Sequence[Any] | None = None) -> Any:
    """Return the same rows, after a check that no label which is a category is missing.

    Parameters
    ----------
    what
        How errors call the data.
    rows
        A frame or a column of Dask or pandas; all else comes back as it is.
    names
        Those of a frame's columns that are labels. Default: all of them.

    Raises
    ------
    ValueError
        One is missing; of Dask, in the task.
    """
    return _without_missing(what, rows, names, is_label=True)


def without_missing_codes(what: str, rows: Any, names: Sequence[Any] | None = None) -> Any:
    """Return the same rows, after the check of :func:`without_missing_labels`, for categories that are features."""
    return _without_missing(what, rows, names, is_label=False)


def _without_missing(what: str, rows: Any, names: Sequence[Any] | None, *, is_label: bool) -> Any:
    meta = meta_of(rows)
    if not hasattr(meta, "iloc"):
        return rows
    columns = [None] if not is_frame(meta) else [name for name in meta.columns if names is None or name in names]
    if len(set(columns)) < len(columns):
        twice = next(name for name in columns if columns.count(name) > 1)
        raise ValueError(f"{what} names {twice!r} more than once. Name each column once, or rename one of them.")
    for name in columns:
        rows = _each(rows, name, partial(_checked, what, is_label=is_label))
    return rows


def _checked(what: str, column: Any, *, is_label: bool) -> Any:
    if not CategoryColumn.has(column.dtype):
        return column
    check = partial(check_none_missing, what, is_label=is_label)
    return column.map_partitions(check, meta=meta_of(column)) if has_meta(column) else check(column)


def _each(rows: Any, name: Any, change: Callable[[Any], Any]) -> Any:
    """Change one column of a frame, or the column that the rows are."""
    if not is_frame(rows):
        return change(rows)
    column = rows[name]
    new_column = change(column)
    if new_column is column:
        return rows
    if isinstance(name, str):  # other columns stay those that Dask may leave unread
        return rows.assign(**{name: new_column})
    if has_meta(rows):
        return rows.map_partitions(_each, name, change, meta=_each(meta_of(rows), name, change))
    changed = rows.copy(deep=False)
    changed[name] = new_column
    return changed
