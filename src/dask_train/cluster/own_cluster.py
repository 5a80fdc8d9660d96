"""What a cluster that this very program started is kept from, for as long as a network is on it.

A ``LocalCluster`` shares the program's terminal, and it gives up Dask workers that leave: both would end Dask workers,
and data, that a network needs or is just restarting. A cluster that somebody else started is left alone.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import dask.config

from dask_train.cluster.on_worker.interrupts import heed_interrupts, ignore_interrupts, this_boot
from dask_train.cluster.peer import Peer
from dask_train.errors import DaskTrainError

# A cluster looks so long after each loss whether a Dask worker of that name is back, and else closes its nanny. When
# it looks while that worker restarts for another reason, it closes a healthy one (seen: 15 s after one network's
# close, in the middle of the next one's), so it is told to look much later.
_PATIENCE = "distributed.deploy.lost-worker-timeout"
_LONG = "1 hour"

# How long a Dask worker whose event loop is busy is waited for; it gets the message all the same.
BUSY_S = 1.0

_networks_now = 0
_patience_before = ""


async def shield(peer: Peer) -> None:
    """Let the Dask workers ignore the terminal's Ctrl-C, and the cluster be patient; once a network."""
    global _networks_now, _patience_before  # noqa: PLW0603 - dask.config is as global
    if peer.dask_end.cluster is None:
        return
    if _networks_now == 0:
        _patience_before = dask.config.get(_PATIENCE)
        dask.config.set({_PATIENCE: _LONG})
    _networks_now += 1
    await _tell_all(peer, ignore_interrupts, this_boot(), os.getpgrp(), os.getpid())


async def unshield(peer: Peer) -> None:
    """Undo one :func:`shield`, on the Dask workers that are still the same processes."""
    global _networks_now  # noqa: PLW0603
    if peer.dask_end.cluster is None:
        return
    _networks_now -= 1
    if _networks_now == 0:
        dask.config.set({_PATIENCE: _patience_before})
    await _tell_all(peer, heed_interrupts)


async def _tell_all(peer: Peer, function: Callable[..., Any], *args: Any) -> None:
    """Those that are gone need not know, and those that are busy will find it when they look."""
    with suppress(OSError, DaskTrainError, TimeoutError):
        await asyncio.wait_for(peer.on_workers(function, *args, on_error="ignore"), BUSY_S)
