"""What becomes of a partition's arrays on its Dask worker. Sent by value: the scheduler need not have this module."""

from __future__ import annotations

from typing import Any


def segment(limit: int | None, arrays: list[Any]) -> Any:
    """Return one partition in shared memory; copied once.

    Parameters
    ----------
    limit
        What all segments of this Dask worker may take, in bytes; None: what Dask and the container leave.
    arrays
        The columns, ``(rows, *row_shape)``, also sparse.

    Raises
    ------
    MemoryError
        They may not take that much.
    """
    from dask_train.worker.segments import make_segment

    return make_segment(arrays, limit)


def count(arrays: list[Any]) -> int:
    """Return rows of one partition."""
    return int(arrays[0].shape[0])
