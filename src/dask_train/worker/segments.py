"""Segments as results of Dask tasks, within what the Dask worker and its container may take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from distributed import get_worker

from dask_train.data.pool import process_pool
from dask_train.data.segment import Segment, stored
from dask_train.process.memory_limit import bytes_left
from dask_train.worker.metrics import WorkerMetrics

# Left of a container's limit for what else happens there: the kernel kills without a word at the limit.
SPARE_BYTES = 64 << 20


def make_segment(arrays: Sequence[Any], limit: int | None) -> Segment:
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
    worker, pool = get_worker(), process_pool()
    WorkerMetrics.of(worker)
    stored_columns = stored(arrays)
    size = stored_columns.nbytes
    # A segment that Dask has written to disk comes back at another place each time it is looked at.
    manager = worker.memory_manager
    most = limit or int((manager.memory_limit or 0) * (manager.memory_target_fraction or 1.0))
    if most and pool.used_bytes + size > most:
        raise MemoryError(
            f"the shared memory of Dask worker {get_worker().address} would take {pool.used_bytes + size:,} bytes, and "
            f"{'train.memory.limit is' if limit else 'Dask writes results to disk beyond'} {most:,}; pass "
            "streaming=True, or fewer partitions a group such as streaming=2, or add Dask workers"
        )
    left = bytes_left() if limit is None else None
    if left is not None and size > left - SPARE_BYTES:
        pool.trim()  # what was freed a moment ago still counts in the container
        left = bytes_left() or 0
    if left is not None and size > left - SPARE_BYTES:
        raise MemoryError(
            f"the container of Dask worker {get_worker().address} has {left:,} bytes left, and a partition takes "
            f"{size:,}; pass streaming=True, give the container more, or add Dask workers"
        )
    return Segment(stored_columns, pool)
