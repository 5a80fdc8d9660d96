"""Keeps the Dask workers of a ``LocalCluster`` alive through a Ctrl-C, for as long as a network is on them."""

from __future__ import annotations

import os
from contextlib import suppress

from distributed import Client

from dask_train.cluster.on_worker.interrupts import heed_interrupts, ignore_interrupts, this_boot


async def shield(client: Client) -> None:
    """Let the Dask workers that this program started ignore its terminal's Ctrl-C; once a network."""
    if client.cluster is not None:
        await client._run(ignore_interrupts, this_boot(), os.getpgrp(), os.getpid(), on_error="ignore")


async def unshield(client: Client) -> None:
    """Undo one :func:`shield`, on the Dask workers that are still the same processes."""
    if client.cluster is not None:
        with suppress(OSError):
            await client._run(heed_interrupts, on_error="ignore")
