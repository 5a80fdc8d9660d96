"""A run's data on one Dask worker: one piece of shared memory that all its role processes there map."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import numpy as np

from dask_train.data.columns import Layout
from dask_train.errors import DataError

# Between two looks for partitions that Dask is computing again.
LOOK_AGAIN_S = 0.1
# One partition, from another Dask worker; then it is asked for anew.
FETCH_S = 30.0


async def load(
    layout: Layout,
    keys: Sequence[Any],
    *,
    where: Callable[[list[Any]], Awaitable[dict[str, Any]]],
    fetch: Callable[[Any, list[str]], Awaitable[Any]],
    progressed: Callable[[], None],
    patience_s: float,
) -> int:
    """Copy partitions into a memfd, each once.

    Parameters
    ----------
    layout
        Where the rows of each partition go.
    keys
        The Dask results that hold the partitions: lists of C-contiguous arrays, one a column.
    where, fetch
        Ask the scheduler where results lie; get one.
    progressed
        Called after each partition.
    patience_s
        How long no partition may come, in seconds.

    Returns
    -------
    int
        The file descriptor, which is the caller's to close.

    Raises
    ------
    DataError
        A partition can't be had any more, or none came in time.
    """
    descriptor = os.memfd_create("dask-train-rows", os.MFD_CLOEXEC)
    try:
        os.ftruncate(descriptor, layout.size_bytes)
        starts = dict(zip(keys, np.cumsum([0, *layout.lengths]).tolist(), strict=False))
        loop = asyncio.get_running_loop()
        last = loop.time()
        while starts:
            answer = await where(list(starts))
            if answer["lost"]:
                raise DataError(f"Partition {answer['lost'][0]} was released, or can't be computed again.")
            for key, addresses in answer["where"]:
                if addresses:
                    try:
                        part = await asyncio.wait_for(fetch(key, list(addresses)), FETCH_S)
                    except (DataError, OSError, TimeoutError):
                        continue  # it was lost on the way; the scheduler knows where to find it next
                    await asyncio.to_thread(_write, descriptor, layout, starts.pop(key), part)
                    progressed()
                    last = loop.time()
            if loop.time() - last > patience_s:
                raise DataError(f"{len(starts)} of {len(keys)} partitions did not come within {patience_s:g} s.")
            if starts:
                await asyncio.sleep(LOOK_AGAIN_S)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _write(descriptor: int, layout: Layout, start_row: int, part: Sequence[np.ndarray]) -> None:
    for column, offset, array in zip(layout.columns, layout.offsets(), part, strict=False):
        view = memoryview(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        position = offset + start_row * column.row_bytes
        while view.nbytes:
            written = os.pwrite(descriptor, view, position)
            view, position = view[written:], position + written
