"""How the pieces of a partition become arrays: plain dicts, made once and the same for all partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NotRequired, TypedDict

import numpy as np

from dask_train.collections.partition.form import PartitionForm, is_frame, is_series, resolved
from dask_train.collections.partition.kinds import ColumnPlan, column_of, is_row_array


class Read(TypedDict):
    """One array of a batch.

    Keys
    ----
    piece
        Of which piece of the partition it is.
    columns
        Of which columns, where the piece is a frame or a column of one; None if it is an array.
    matrix
        The dtype of the matrix that they become; None if it is one column alone.
    sparse
        There, and True, where the piece is a sparse matrix, and stays one.
    """

    piece: int
    columns: list[ColumnPlan] | None
    matrix: str | None
    sparse: NotRequired[bool]


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

    It may have more: ``picks``, by which a piece is opened; ``taken_apart``, where the pieces are arrays, one a column;
    ``same_index``, where all frames have to have the same.
    """

    what: str
    names: tuple[str, ...] | None
    is_tuple: bool
    reads: list[Read]
    form: tuple[tuple[str, ...] | None, bool, int]


def make_plan(where: str, form: PartitionForm) -> Plan:
    # Decide from what the values look like; frames may be empty ones that only have dtypes.
    values, is_tuple = form["values"], form["is_tuple"]
    if len(values) == 1 and is_frame(values[0]):
        arrays = form["picks"]["arrays"] if form["picks"] else [None]
        pairs = resolved(where, list(values[0].columns), arrays)
        reads = [_read(where, 0, values[0], names, matrix=matrix) for names, matrix in pairs]
    else:
        reads = [_whole(where, number, value) for number, value in enumerate(values)]
    return {
        "what": where,
        "names": form["names"],
        "is_tuple": is_tuple or bool(form["picks"] and form["picks"]["is_tuple"]),
        "reads": reads,
        "form": (form["names"], is_tuple, len(values)),
    }


def columns_of(plan: Mapping[str, Any]) -> tuple[tuple[str, tuple[int, ...]], ...] | None:
    # dtype and row shape of each array that frames become; None if only rows tell, as of lists in them.
    columns = [(one["matrix"], one["columns"] or []) for one in plan["reads"]]
    if any(not plans or is_row_array(plans[0]) for _, plans in columns):
        return None
    return tuple((matrix, (len(plans),)) if matrix else (plans[0]["dtype"], ()) for matrix, plans in columns)


def opened(where: str, plan: Mapping[str, Any], form: PartitionForm) -> list[Any]:
    # The values of a partition, in the order of the plan, put together as the first is.
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
        return f"a dict of {str(list(names))[1:-1]}"
    return f"a tuple of {count}" if is_tuple else "one array or frame"


def _whole(where: str, number: int, value: Any) -> Read:
    if is_frame(value):
        ((names, _),) = resolved(where, list(value.columns), [None])
        return _read(where, number, value, names, matrix=True)
    if is_series(value):
        return {"piece": number, "columns": [column_of(where, value.name, value.dtype)], "matrix": None}
    return {"piece": number, "columns": None, "matrix": None}


def _read(where: str, piece: int, frame: Any, names: Sequence[Any], *, matrix: bool) -> Read:
    dtypes = frame.dtypes
    columns = [column_of(where, name, dtypes[name]) for name in names]
    texts = [column for column in columns if column["how"] == "text"]
    arrays = [column for column in columns if is_row_array(column)]
    odd = (arrays or texts)[:1]
    if odd and len(columns) > max(1, len(texts)):
        others = str([column["name"] for column in columns if column is not odd[0]])[1:-1]
        name, holds = odd[0]["name"], "lists or objects rather than numbers (as an empty partition in front may)"
        if not arrays:  # Dask makes text of objects
            holds = "text (of arrays too, unless dask.config.set({'dataframe.convert-string': False}) was before)"
        raise TypeError(
            f"Column {name!r} of {where} holds {holds}, so it can't be in one matrix "
            f"with {others}. Make categories of text, .astype(pd.CategoricalDtype(values)); or pass it by itself, "
            f"features={name!r}, or in a dict, {{{str(name)!r}: frame[{name!r}], 'numbers': frame[[...]]}}."
        )
    common = np.result_type(*(np.dtype(column["dtype"] or "f8") for column in columns)).str
    return {"piece": piece, "columns": columns, "matrix": common if matrix and not arrays else None}
