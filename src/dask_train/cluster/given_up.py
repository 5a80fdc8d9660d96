"""Values that a client has given up, and of which the scheduler has not heard yet."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any

from distributed import Client

from dask_train.cluster.by_value import ByValue
from dask_train.cluster.peer import Peer

# Dask sends such news every 10 ms, besides the calls that it answers.
LOOK_S, PATIENCE_S = 0.01, 10.0


async def until_given_up(client: Client, key: str) -> None:
    """Wait until the scheduler knows that a client has given up a value, before it puts another of that key.

    News of the old one that come after the new one would take that away.

    Parameters
    ----------
    key
        Of which the client has no future.
    """
    looked = ByValue(is_wanted, sys.modules[__name__])
    deadline = time.monotonic() + PATIENCE_S
    while await Peer(client).on_scheduler(looked, client.id, key) and time.monotonic() < deadline:
        await asyncio.sleep(LOOK_S)


def is_wanted(client: str, key: str, dask_scheduler: Any = None) -> bool:
    """Return whether the scheduler holds a value for a client; runs there."""
    task = dask_scheduler.tasks.get(key)
    return task is not None and any(state.client_key == client for state in task.who_wants)
