"""A run as a display shows it, a few times a second while its end is awaited."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dask_train.run.state import ALIVE

if TYPE_CHECKING:
    from dask_train.driver.loop import Driver

# How often one looks; also how late the end of a run may be seen.
LOOK_S = 0.25

Watch = Callable[[dict[str, Any]], None]


def status_of(driver: Driver) -> dict[str, Any]:
    """Return what ``Run.status`` tells."""
    summary = driver.summary()
    names = ("role", "rank", "phase", "attempt", "address", "pid", "doing", "num_batches")
    roles = [dict(zip(names, role, strict=True)) for role in summary.pop("roles")]
    for other in ("last_scores", "num_restarts"):  # for other clients that watch
        summary.pop(other)
    return {**summary, "roles": roles}


def seconds_of(driver: Driver) -> float:
    """Return how long the run has lasted so far, or lasted in all."""
    attempts = driver.history.attempts
    return (attempts[-1].ended or driver.history.now()) - attempts[0].started


def seen(driver: Driver) -> dict[str, Any]:
    """Return the view of a run for ``watch``: its status and more of it."""
    status, rows = status_of(driver), driver.history.rows_seen
    return {
        **status,
        "roles": [{**role, "num_rows": rows.get((role["role"], role["rank"]), 0)} for role in status["roles"]],
        "run": driver.job.id,
        "seconds": seconds_of(driver),
        "num_alive": sum(role.phase in ALIVE for role in driver.state.roles.values()),
        "training": sorted(driver.job.plan.training),
        "last_scores": driver.history.last_scores(),
        "scores": driver.history.scores,
    }


def watch_until(driver: Driver, watch: Watch, deadline: float | None) -> None:
    """Call ``watch`` until the run is over, or until ``time.monotonic()`` has reached the deadline, if any.

    Parameters
    ----------
    driver
        The run's.
    watch
        Called in this thread, with what :func:`seen` gives.
    deadline
        None to wait for as long as the run lasts.
    """

    async def look(wait_s: float) -> dict[str, Any]:
        await driver.until(lambda: driver.over, time.monotonic() + wait_s)
        return seen(driver)

    wait_s = 0.0  # something is to be seen at once
    while not driver.over and (deadline is None or time.monotonic() < deadline):
        watch(driver.peer.run(look, wait_s))
        wait_s = LOOK_S
    watch(driver.peer.run(look, 0.0))
