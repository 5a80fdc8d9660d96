"""Changes of the number of workers of a run that trains, as the user asks for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from dask_train.config import is_duration
from dask_train.driver.loop import Driver
from dask_train.errors import ClosedError, PlacementError
from dask_train.run import events
from dask_train.run.bounds import LEAST, LEAST_WITH_SERVERS
from dask_train.run.resizing import ROLE, leftover
from dask_train.run.state import Phase, ResizePhase, RolePhase, RunState, SizeChange

_FOR = (
    "run.resize() is for dt.fit(..., recovery='in_place') of torch modules and Keras models with several workers, and "
    "for dt.fit(..., ps=1) with several workers or workers=(1, 4), without streaming="
)


def check_resize(driver: Driver, workers: int, timeout_s: Any) -> None:
    """Check that a run may have that many workers, and that ``timeout_s`` is a number of seconds.

    Raises
    ------
    ValueError, TypeError
        One of them is not.
    """
    job, has_servers = driver.job, "ps" in driver.job.plan.counts
    if job.run.resizes is None or job.run.window is not None or not (job.plan.in_place or has_servers):
        raise ValueError(f"Run {job.id} keeps its number of workers: {_FOR}.")
    least = LEAST_WITH_SERVERS if has_servers else LEAST
    if isinstance(workers, bool) or not isinstance(workers, int):
        raise TypeError(f"workers is {workers!r}; pass a whole number of at least {least}.")
    if workers < least and has_servers:
        raise ValueError(f"workers is {workers}; a run has at least one. To end it, call run.stop().")
    if workers < least:
        raise ValueError(
            f"workers is {workers}; a run of several workers continues with at least {LEAST}. Start another one with "
            "workers=1 from its checkpoint."
        )
    if not is_duration(timeout_s):
        raise ValueError(
            f"timeout_s is {timeout_s!r}; pass a finite number of seconds, or 0 if there has to be room now."
        )
    job.run.resizes(workers)


async def resize(driver: Driver, workers: int, timeout_s: float) -> None:
    """Change the number of workers of a run as its user asks, which does not follow the Dask workers any more.

    Raises
    ------
    PlacementError, ClosedError
        As of :func:`change`.
    """
    driver.follows = None
    async with driver.resizing:
        await change(driver, workers, timeout_s)


async def change(driver: Driver, workers: int, timeout_s: float = 0.0) -> None:
    """Change the number of workers of a run, and wait until it has it; with its lock, so one request after the other.

    Raises
    ------
    PlacementError
        The run continues with as many as before.
    ClosedError
        It is over.
    """
    await _until(driver, lambda: _can_be_asked(driver))
    number = driver.num_resizes
    driver.num_resizes += 1
    driver.happened(events.ResizeAsked(number=number, size=workers, timeout_s=timeout_s))
    try:
        await _until(driver, lambda: _is_settled(driver.state.resize, number))
    except asyncio.CancelledError:
        driver.happened(events.ResizeCancelled(number=number))
        raise
    assert driver.state.resize is not None
    if why := driver.state.resize.why:
        count, where = driver.state.plan.counts[ROLE], " on the host of the run" if driver.state.plan.one_host else ""
        raise PlacementError(
            f"Run {driver.job.id} continues with {count} workers, and not with {workers}.",
            f"{why[:1].upper()}{why[1:].rstrip('.')}.",
            f"Wait for room, add Dask workers{where}, or pass timeout_s= to wait for them here.",
        )


def _can_be_asked(driver: Driver) -> bool:
    """Return whether a run trains, no change that was cancelled is under way, or still to be begun, and none lingers.

    Else one that joins could take the place of a process that has left and is about to return, and end it. Nor is a
    worker being replaced, or waits for the others: the other number in which it may meet would be one of before.
    """
    is_free = not driver.num_resizes or _is_settled(driver.state.resize, driver.num_resizes - 1)
    trains = driver.state.phase is Phase.RUNNING and driver.state.trains_together
    return is_free and trains and not leftover(driver.state) and not _are_meeting(driver.state)


def _are_meeting(state: RunState) -> bool:
    """Return whether workers meet anew, or are about to, as one was lost."""
    keys, settled = state.plan.training_keys(), (RolePhase.RUNNING, RolePhase.RETURNED)
    workers = [role for key, role in state.roles.items() if key in keys]
    return not state.plan.apart and any(role.meets_at or role.phase not in settled for role in workers)


def _is_settled(resize: SizeChange | None, number: int) -> bool:
    return resize is not None and resize.number == number and resize.phase is ResizePhase.SETTLED


async def _until(driver: Driver, met: Callable[[], bool]) -> None:
    await driver.until(lambda: driver.over or met())
    if driver.over:
        raise ClosedError(f"Run {driver.job.id} is over: {driver.history.outcome}.")
