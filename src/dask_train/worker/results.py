"""A Dask result as a Dask worker can get it: its own object, or a copy from where it lies."""

from __future__ import annotations

from typing import Any

from distributed import Worker
from distributed.utils_comm import gather_from_workers

from dask_train.errors import DataError


async def fetch_result(worker: Worker, key: Any, who_has: list[str]) -> Any:
    """Return the value of a task; on the Dask worker's event loop.

    Returns
    -------
    The very object in the Dask worker's memory where it lies there, no copy; else one copy over Dask's connections.

    Raises
    ------
    DataError
        It is not where it was said to be.
    """
    if key in worker.data:
        return worker.data[key]
    values, missing, _, _ = await gather_from_workers({key: who_has}, worker.rpc, who=worker.address)
    if key not in values:
        raise DataError(f"it {'is not' if missing else 'can not be read'} on {', '.join(who_has)}")
    return values[key]
