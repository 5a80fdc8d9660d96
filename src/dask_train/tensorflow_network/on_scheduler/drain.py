"""Restarting Dask workers without losing what only they hold.

A TensorFlow server can't be stopped, so the end of a network is a restart of its Dask workers. What only they hold is
moved first: to Dask workers outside the network, or, where there is no room, to one part of the network while the
other restarts. What can be neither moved nor computed again is listed before anything is touched.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable
from typing import Any

from distributed.comm import get_address_host_port

from .layout import ClusterPicture

logger = logging.getLogger("dask_train.scheduler")

# A task that ends, or a Dask worker that dies, while data is moved, makes another round necessary.
MAX_ROUNDS = 3

# Dask tells what is released, and a changed status, in batches of 10 and 2 ms: what goes away anyway is not moved.
TOLD_S = 0.05


def stuck(scheduler: Any, addresses: list[str]) -> list[str]:
    """Keys on ``addresses`` that could be neither moved nor computed again, as ``key (bytes)``.

    The whole restart is tried, wave by wave, on a picture of the cluster.
    """
    layout = ClusterPicture.of(scheduler, addresses)
    waiting = list(addresses)
    while waiting and (wave := layout.next_wave(waiting)):
        layout.restarted(wave)
        waiting = [address for address in waiting if address not in wave]
    return _names(scheduler, [*layout.actors, *layout.shares(waiting)[1]])


def _names(scheduler: Any, keys: Iterable[Any]) -> list[str]:
    tasks = [scheduler.tasks[key] for key in keys if key in scheduler.tasks]
    return [f"{task.key} ({'an actor' if task.actor else f'{task.get_nbytes()} bytes'})" for task in tasks]


async def restart_emptied(
    scheduler: Any, addresses: list[str], timeout_s: float, *, force: bool
) -> tuple[list[str], list[str]]:
    """Move everything away from ``addresses`` wave by wave and restart them.

    Returns the nannies whose Dask workers did not come back, and what could not be moved although :func:`stuck` had
    said so: then its holders, and those after them, were not restarted. With ``force`` it is lost instead.
    """
    deadline = time.monotonic() + timeout_s
    waiting = [address for address in addresses if address in scheduler.workers]
    missing: list[str] = []
    while waiting:
        layout = ClusterPicture.of(scheduler, waiting)
        wave = layout.next_wave(waiting) or waiting
        if layout.only_on(wave):
            set_status(scheduler, wave, "closing_gracefully")  # so that no result appears there after the move
            try:
                await asyncio.sleep(TOLD_S)
                left = await move_away(scheduler, wave, waiting, deadline)
            except BaseException:
                set_status(scheduler, wave, "running")
                raise
            if left and not force:
                set_status(scheduler, wave, "running")
                return missing, _names(scheduler, left)
        missing += await restart(scheduler, wave, deadline)
        waiting = [address for address in waiting if address not in wave and address in scheduler.workers]
    return missing, []


async def move_away(scheduler: Any, wave: list[str], leaving: list[str], deadline: float) -> list[Any]:
    """Copy what only ``wave`` holds to other Dask workers; the needed keys that are still only there."""
    for _ in range(MAX_ROUNDS):
        layout = ClusterPicture.of(scheduler, leaving)
        shares, _ = layout.shares(wave)
        if not shares:
            break
        copies = (
            scheduler.gather_on_worker(target, {key: list(layout.holders[key]) for key in keys})
            for target, keys in shares.items()
        )
        try:
            async with asyncio.timeout(deadline - time.monotonic()):
                await asyncio.gather(*copies)
        except TimeoutError:
            logger.warning("What only %s hold could not be moved before the deadline", ", ".join(wave))
            break
    layout = ClusterPicture.of(scheduler, leaving)
    return [key for key in layout.only_on(wave) if key in layout.needed]


def set_status(scheduler: Any, wave: list[str], status: str) -> None:
    """Let ``wave`` run nothing new, or continue, as ``retire_workers`` does."""
    stimulus = f"train-close-{time.time()}"
    for address in wave:
        ws = scheduler.workers.get(address)
        if ws is not None:
            scheduler.handle_worker_status_change(status, ws, stimulus)
            scheduler.stream_comms[address].send(
                {"op": "worker-status-change", "status": status, "stimulus_id": stimulus}
            )


async def restart(scheduler: Any, wave: list[str], deadline: float) -> list[str]:
    """Restart ``wave`` through their nannies and wait until they are back; the nannies that did not come back."""
    old = {scheduler.workers[a] for a in wave if a in scheduler.workers}
    nannies = {ws.nanny for ws in old}
    await scheduler.restart_workers(
        [ws.address for ws in old],
        timeout=max(1.0, deadline - time.monotonic()),
        wait_for_workers=False,
        on_error="return",
        stimulus_id=f"train-close-{time.time()}",
    )
    # A Dask worker with a port of its own comes back at the same address, so look at the processes.
    look_at_nannies = time.monotonic() + 1.0
    while missing := nannies - {ws.nanny for ws in scheduler.running if ws not in old}:
        if time.monotonic() > deadline:
            return sorted(missing)
        if time.monotonic() > look_at_nannies:
            look_at_nannies += 1.0
            if all(await asyncio.gather(*map(_is_gone, missing))):
                return sorted(missing)
        await asyncio.sleep(0.02)
    return []


async def _is_gone(nanny: str) -> bool:
    """Return whether nothing listens at a nanny's address any more, so that it will not start its Dask worker again."""
    try:
        _, writer = await asyncio.open_connection(*get_address_host_port(nanny))
    except ConnectionRefusedError:
        return True
    except OSError:  # a slow network is no proof
        return False
    writer.close()
    return False
