"""What a cluster that this very program started is kept from, for as long as a network is on it.

A ``LocalCluster`` shares the program's terminal, and it gives up Dask workers that leave: both would end Dask workers,
and data, that a network needs or is just restarting. A cluster that somebody else started is left alone.
"""

from __future__ import annotations

import os
from contextlib import suppress

import dask.config
from distributed import Client

from dask_train.cluster.on_worker.interrupts import heed_interrupts, ignore_interrupts, this_boot

# A cluster looks so long after each loss whether a Dask worker of that name is back, and else closes its nanny. When
# it looks while that worker restarts for another reason, it closes a healthy one (seen: 15 s after one network's
# close, in the middle of the next one's), so it is told to look much later.
_PATIENCE = "distributed.deploy.lost-worker-timeout"
_LONG = "1 hour"

_networks_now = 0
_patience_before = ""


async def shield(client: Client) -> None:
    """Let the Dask workers ignore the terminal's Ctrl-C, and the cluster be patient; once a network."""
    global _networks_now, _patience_before  # noqa: PLW0603 - dask.config is as global
    if client.cluster is None:
        return
    if _networks_now == 0:
        _patience_before = dask.config.get(_PATIENCE)
        dask.config.set({_PATIENCE: _LONG})
    _networks_now += 1
    await client._run(ignore_interrupts, this_boot(), os.getpgrp(), os.getpid(), on_error="ignore")


async def unshield(client: Client) -> None:
    """Undo one :func:`shield`, on the Dask workers that are still the same processes."""
    global _networks_now  # noqa: PLW0603
    if client.cluster is None:
        return
    _networks_now -= 1
    if _networks_now == 0:
        dask.config.set({_PATIENCE: _patience_before})
    with suppress(OSError):
        await client._run(heed_interrupts, on_error="ignore")
