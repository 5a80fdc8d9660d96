"""A run as a display wants it, a few times a second while somebody waits for its end."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dask_train.run.state import ALIVE

if TYPE_CHECKING:
    from dask_train.cluster.driver import Driver

# How often one looks; also how late the end of a run may be seen.
LOOK_S = 0.25

Watch = Callable[[dict[str, Any]], None]


def watch_until(driver: Driver, status: Callable[[], dict[str, Any]], watch: Watch, deadline: float | None) -> None:
    """Call ``watch`` until the run is over, or until ``time.monotonic()`` has reached the deadline, if any.

    Parameters
    ----------
    driver
        The run's.
    status
        ``Run.status``.
    watch
        Called in this thread, with the status and with ``num_alive``, ``training`` and ``last_scores``.
    deadline
        None to wait for as long as the run goes on.
    """

    async def look(wait_s: float) -> dict[str, Any]:
        await driver.until(lambda: driver.over, time.monotonic() + wait_s)
        return {
            **status(),
            "num_alive": sum(role.phase in ALIVE for role in driver.state.roles.values()),
            "training": sorted(driver.job.plan.training),
            "last_scores": driver.chronicle.last_scores(),
        }

    wait_s = 0.0  # something is to be seen at once
    while not driver.over and (deadline is None or time.monotonic() < deadline):
        watch(driver.peer.run(look, wait_s))
        wait_s = LOOK_S
    watch(driver.peer.run(look, 0.0))
