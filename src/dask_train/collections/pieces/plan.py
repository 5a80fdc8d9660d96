"""How the pieces of a partition become arrays: plain dicts, made once and the same for all partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

import numpy as np

from dask_train.collections.pieces.form import Form, chosen, is_frame, is_series
from dask_train.collections.pieces.kinds import Column, column_of, is_row_array


class Read(TypedDict):
    """One array of a batch.

    Keys
    ----
    piece
        Of which piece of the partition it is.
    columns
        Of which columns, where the piece is a frame or a column of one; None where it is an array.
    matrix
        The dtype of the matrix that they become; None where it is one column alone.
    """

    piece: int
    columns: list[Column] | None
    matrix: str | None


class Plan(TypedDict):
    """All arrays of a batch.

    Keys
    ----
    what
        How errors call the data set.
    names, is_tuple
        As :class:`dask_train.collections.Source` has them.
    reads
        The arrays, in order.
    form
        Names, whether a tuple, and number of values, as each partition has to have them.
    """

    what: str
    names: tuple[str, ...] | None
    is_tuple: bool
    reads: list[Read]
    form: tuple[tuple[str, ...] | None, bool, int]


def make_plan(where: str, form: Form) -> Plan:
    """Decide from what the values look like; frames may be empty ones that only have dtypes.

    Raises
    ------
    TypeError, ValueError
        A column can't be numbers, or a name does not fit.
    """
    values, is_tuple = form["values"], form["is_tuple"]
    if len(values) == 1 and is_frame(values[0]):
        reads = _selected(where, values[0], form["features"], form["label"])
    else:
        reads = [_whole(where, number, value) for number, value in enumerate(values)]
    return {
        "what": where,
        "names": form["names"],
        "is_tuple": is_tuple or form["label"] is not None,
        "reads": reads,
        "form": (form["names"], is_tuple, len(values)),
    }


def opened(where: str, plan: Mapping[str, Any], form: Form) -> list[Any]:
    """The values of a partition, in the order of the plan.

    Raises
    ------
    ValueError
        The partition is put together in another way than the first.
    """
    names, is_tuple, count = plan["form"]
    values = form["values"]
    if names is not None and form["names"] is not None and set(names) == set(form["names"]):
        return [values[form["names"].index(name)] for name in names]
    if (form["names"], form["is_tuple"], len(values)) != (names, is_tuple, count):
        raise ValueError(
            f"{where} is {_put(form['names'], form['is_tuple'], len(values))}, and the first is "
            f"{_put(names, is_tuple, count)}. Make all partitions alike."
        )
    return values


def _put(names: Sequence[str] | None, is_tuple: bool, count: int) -> str:
    if names is not None:
        return f"a dict of {', '.join(map(repr, names))}"
    return f"a tuple of {count}" if is_tuple else "one array or frame"


def _selected(where: str, frame: Any, features: Any, label: Any) -> list[Read]:
    one, several, label = chosen(where, list(frame.columns), features, label)
    reads = [_read(where, 0, frame, [one] if several is None else several, matrix=several is not None)]
    return reads if label is None else [*reads, _read(where, 0, frame, [label], matrix=False)]


def _whole(where: str, number: int, value: Any) -> Read:
    if is_frame(value):
        names = chosen(where, list(value.columns), None, None)[1]
        return _read(where, number, value, names or [], matrix=True)
    if is_series(value):
        return {"piece": number, "columns": [column_of(where, value.name, value.dtype)], "matrix": None}
    return {"piece": number, "columns": None, "matrix": None}


def _read(where: str, piece: int, frame: Any, names: Sequence[Any], *, matrix: bool) -> Read:
    dtypes = frame.dtypes
    columns = [column_of(where, name, dtypes[name]) for name in names]
    arrays = [column for column in columns if is_row_array(column)]
    if arrays and len(columns) > 1:
        others = ", ".join(repr(column["name"]) for column in columns if column is not arrays[0])
        name = arrays[0]["name"]
        raise TypeError(
            f"Column {name!r} of {where} holds lists or objects rather than numbers, so it can't be in one matrix "
            f"with {others}. Name it alone, features={name!r}; or pass a dict, such as "
            f"{{{str(name)!r}: frame[{name!r}], 'numbers': frame[[...]]}}."
        )
    common = np.result_type(*(np.dtype(column["dtype"] or "f8") for column in columns)).str
    return {"piece": piece, "columns": columns, "matrix": common if matrix and not arrays else None}
