"""What distinguishes the rows of a Dask collection from others, in this process and in any later one."""

from __future__ import annotations

from typing import Any

from dask.tokenize import tokenize

from dask_train.compat.dask import is_expression, parameters_of

# Operands of Dask's Parquet readers that they fill in as they go, which have other tokens in each process; the files
# themselves, with their sizes and times, are in the reader's checksum.
_FILLED_IN = {"_dataset_info_cache", "_pq_length_stats"}


def identity(collection: Any) -> str:
    """Return a token of how a collection is made; nothing is computed.

    Parameters
    ----------
    collection
        A Dask array, frame or column.

    Returns
    -------
    str
        The same for the same work on the same sources: contents of NumPy arrays and frames of pandas, seeds, files of
        Parquet and those of dask_train.files and the like with their times and sizes. Another one in each process for
        what Dask can't name by what it is made of: generators without a seed, impure delayed functions. Contents of
        other files are known by their path alone.
    """
    expression = getattr(collection, "expr", None)
    return tokenize(collection.name if expression is None else _told(expression))


def _told(value: Any) -> Any:
    """Return an expression of Dask's frames by its operands."""
    if isinstance(value, list):
        return [_told(item) for item in value]
    if not is_expression(value):
        return value
    known = parameters_of(value)
    names = [*known, *[""] * (len(value.operands) - len(known))]
    operands = [_told(operand) for name, operand in zip(names, value.operands, strict=True) if name not in _FILLED_IN]
    # Asked of the class, since a frame's expression answers with a column of that name.
    return [type(value).__name__, value.checksum if hasattr(type(value), "checksum") else None, operands]
