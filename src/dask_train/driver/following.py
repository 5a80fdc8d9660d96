"""A run whose number of workers follows the Dask workers of its host."""

from __future__ import annotations

from typing import Any

from dask_train.driver.loop import Driver
from dask_train.driver.resizing import change
from dask_train.errors import ClosedError, PlacementError
from dask_train.printing import say
from dask_train.run.resizing import ROLE
from dask_train.run.state import Phase, RolePhase, RunState

# Dask workers that come within this time of each other make one change; and those that leave, whose roles have a second
# to end with a step.
COME_S, LEAVE_S = 1.0, 0.1
# After this time a number is tried again for which there was no room, or whose workers were lost.
TRY_AGAIN_S = 30.0
# So many places are not known yet; or they will not be any more, as the run is over.
_UNKNOWN = -1


async def follow(driver: Driver) -> None:
    """Change the number of workers as that of the Dask workers changes which can carry one, until the run is over.

    A run that starts again, or replaces a lost worker, does so first.
    """
    count, tried_at = _UNKNOWN, float("-inf")
    while driver.follows is not None and await _trains(driver):
        wanted = driver.follows.nearest(count)
        is_due = count != _UNKNOWN and wanted != driver.state.plan.counts[ROLE]
        is_due = is_due and driver.now() - tried_at > TRY_AGAIN_S
        settles_s = COME_S if wanted > driver.state.plan.counts[ROLE] else LEAVE_S
        known, count = count, await _num_places(driver, count, settles_s if is_due else driver.peer.poll_s)
        if count == _UNKNOWN:
            return
        if count != known:
            tried_at = float("-inf")
        elif is_due and is_steady(driver.state) and (refusal := await _refusal(driver, wanted, count)):
            tried_at = driver.now()
            # Else a Dask worker of those that join has left, and another number is tried.
            if await _num_places(driver, count, LEAVE_S) == count and refusal not in driver.history.notices:
                driver.history.notice(refusal)


def is_steady(state: RunState) -> bool:
    """Return whether all workers train together, and none starts or leaves."""
    phases = {state.roles[key].phase for key in state.plan.training_keys()}
    return state.phase is Phase.RUNNING and state.met and phases == {RolePhase.RUNNING}


async def _trains(driver: Driver) -> bool:
    """Wait until all workers train together; return whether the run still follows the Dask workers."""
    await driver.until(lambda: driver.over or driver.follows is None or is_steady(driver.state))
    return not driver.over and driver.follows is not None


async def _refusal(driver: Driver, wanted: int, count: int) -> str:
    """Change the number of workers; return why that can't be while the run trains, empty if it can."""
    try:
        async with driver.resizing:
            if driver.follows is None:  # the user has asked for a number meanwhile
                return ""
            await change(driver, wanted)
    except ClosedError:
        return ""
    except PlacementError as error:
        return str(error) if is_steady(driver.state) else ""  # it starts again, or comes to its end
    say(f"{driver.job.id} continues with {wanted} workers: {count} Dask workers of its host can carry one each.")
    return ""


async def _num_places(driver: Driver, known: int, timeout_s: float) -> int:
    """Count the Dask workers that carry a worker of the run, or can; at once if they are not as many as ``known``."""
    state, host = driver.state, ""
    for key in state.plan.training_keys():
        host = host or driver.dispatch.host_of(state.roles[key].address)
    places: dict[str, Any] = {"on": driver.job.on, "host": host, "needs": dict(driver.job.needs.get(ROLE, {}))}
    question: dict[str, Any] = {"run": driver.job.id, "places": places, "known": known, "timeout_s": timeout_s}
    answer = await driver.peer.ask("train_run_room", **question)
    return int(answer["count"]) if answer["status"] == "OK" else _UNKNOWN
