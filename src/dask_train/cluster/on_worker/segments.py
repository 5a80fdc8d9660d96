"""Segments as results of Dask tasks, within what the Dask worker and its container may take."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from distributed import get_worker

from dask_train.cluster.on_worker.memory_limit import bytes_left
from dask_train.data.pool import process_pool
from dask_train.data.segment import Segment

# Left of a container's limit for what else happens there: the kernel kills without a word at the limit.
SPARE_BYTES = 64 << 20


def make_segment(arrays: Sequence[np.ndarray], limit: int | None) -> Segment:
    """Put a partition into this process's shared memory; one copy.

    Parameters
    ----------
    arrays
        The columns.
    limit
        What all segments of this process may take, in bytes; None: what Dask's limit and the container's leave.

    Raises
    ------
    MemoryError
        They may not take that much.
    """
    pool = process_pool()
    size = sum(array.nbytes for array in arrays)
    most = limit or getattr(get_worker().memory_manager, "memory_limit", None)
    if most and pool.used_bytes + size > most:
        raise MemoryError(
            f"the shared memory of Dask worker {get_worker().address} would take {pool.used_bytes + size:,} bytes, and "
            f"{'train.memory.limit' if limit else 'its memory limit'} is {most:,}; pass streaming=True, or add Dask "
            "workers"
        )
    left = bytes_left() if limit is None else None
    if left is not None and size > left - SPARE_BYTES:
        raise MemoryError(
            f"the container of Dask worker {get_worker().address} has {left:,} bytes left, and a partition takes "
            f"{size:,}; pass streaming=True, give the container more, or add Dask workers"
        )
    return Segment(arrays, pool)
