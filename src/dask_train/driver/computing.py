"""Count what Dask computes as progress of the run that waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from dask_train.cluster.peer import Peer

# How often progress is checked in the time after which a run without progress has stalled.
LOOKS = 4


@asynccontextmanager
async def while_computed(
    peer: Peer, keys: Callable[[], Sequence[Any]], every_s: float, tell: Callable[[], None]
) -> AsyncIterator[None]:
    """While it lasts, call ``tell`` each time, after ``every_s`` seconds, that Dask computes tasks of these keys."""

    async def look() -> None:
        while True:
            await asyncio.sleep(every_s)
            if (await peer.ask("train_run_computes", keys=list(keys())))["computes"]:
                tell()

    looking = asyncio.ensure_future(look())
    try:
        yield
    finally:
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)
