"""Categories as labels: none may be missing, since its code is -1, which losses take for a class or a number."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from dask import delayed
from dask.delayed import Delayed

from dask_train.collections.partition.form import is_frame


def with_all_labels(what: str, given: Any, names: Sequence[Any] | None = None) -> Any:
    """The same rows, whose categories are seen to be there: of pandas at once, of Dask when they are computed.

    Parameters
    ----------
    what
        How errors call the data.
    given
        A frame or a column of Dask or pandas, or a list of delayed frames; all else comes back as it is.
    names
        Those of a frame's columns that are labels; all of them where it is None.

    Raises
    ------
    ValueError
        One is missing; of Dask, in the task.
    """
    if names and isinstance(given, list) and all(isinstance(part, Delayed) for part in given):
        return [delayed(partial(with_all_labels, what, names=names), pure=False)(part) for part in given]
    meta = getattr(given, "_meta", given)
    if not hasattr(meta, "iloc"):
        return given
    if not is_frame(meta):
        return _seen(what, meta.name, given) if _is_coded(meta) else given
    for name in meta.columns if names is None else names:
        if name in meta.columns and _is_coded(meta[name]):
            given = _seen_in(what, name, given)
    return given


def _seen_in(what: str, name: Any, frame: Any) -> Any:
    if not hasattr(frame, "_meta"):
        _all_there(what, name, frame[name])
        return frame
    if isinstance(name, str):  # other columns stay those that Dask may leave unread
        return frame.assign(**{name: _seen(what, name, frame[name])})
    return frame.map_partitions(partial(_seen_in, what, name), meta=frame._meta)


def _is_coded(column: Any) -> bool:
    return str(getattr(column, "dtype", "")) == "category"


def _seen(what: str, name: Any, column: Any) -> Any:
    check = partial(_all_there, what, name)
    return column.map_partitions(check, meta=column._meta) if hasattr(column, "_meta") else check(column)


def _all_there(what: str, name: Any, column: Any) -> Any:
    if missing := int(column.isna().sum()):
        raise ValueError(
            f"{missing:,} labels of {what} are missing: column {name!r} has no category there, and its code would be "
            f"-1, a class of its own. Leave such rows out, with frame.dropna(subset=[{name!r}]); for a loss that "
            f"ignores -1 pass the codes themselves, frame[{name!r}].cat.codes."
        )
    return column
