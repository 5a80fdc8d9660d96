"""A run whose number of workers follows the Dask workers; those of its host, if it has to be on one."""

from __future__ import annotations

from typing import Any

from dask_train.driver.loop import Driver
from dask_train.driver.resizing import change
from dask_train.errors import ClosedError, PlacementError
from dask_train.printing import say
from dask_train.run.resizing import ROLE
from dask_train.run.state import Phase, RolePhase, RunState

# How long the number of Dask workers has to stay before workers are added, and before they are taken away.
COME_S, LEAVE_S = 1.0, 0.1
# Seconds after which a change that failed is tried again.
TRY_AGAIN_S = 30.0
# Stands for an unknown number: nobody has asked yet, or the run is over.
_UNKNOWN = -1


async def follow(driver: Driver) -> None:
    """Follow the number of Dask workers that can carry a worker, until the run is over or the user sets a number.

    If the run starts again, or replaces a lost worker, it does so first.
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
        elif is_due and is_steady(driver.state) and (refusal := await _changed(driver, wanted, count)):
            tried_at = driver.now()
            # If the count has changed, a joining Dask worker has left: the new number is tried, without a notice.
            if await _num_places(driver, count, LEAVE_S) == count and refusal not in driver.history.notices:
                driver.history.notice(refusal)


def is_steady(state: RunState) -> bool:
    """Return whether all workers of the present number train together."""
    phases = {state.roles[key].phase for key in state.plan.training_keys()}
    return state.phase is Phase.RUNNING and state.trains_together and phases == {RolePhase.RUNNING}


async def _trains(driver: Driver) -> bool:
    """Wait until all workers train together; return whether the run still follows the Dask workers."""
    await driver.until(lambda: driver.over or driver.follows is None or is_steady(driver.state))
    return not driver.over and driver.follows is not None


async def _changed(driver: Driver, wanted: int, count: int) -> str:
    """Change the number of workers; return why that failed if the run still trains, else an empty text."""
    try:
        async with driver.resizing:
            if driver.follows is None:  # the user has asked for a number meanwhile
                return ""
            await change(driver, wanted)
    except ClosedError:
        return ""
    except PlacementError as error:
        return str(error) if is_steady(driver.state) else ""  # it starts again, or comes to its end
    where = " of its host" if driver.state.plan.one_host else ""
    say(f"{driver.job.id} continues with {wanted} workers: {count} Dask workers{where} can carry one each.")
    return ""


async def _num_places(driver: Driver, known: int, timeout_s: float) -> int:
    """Return how many Dask workers carry a worker of the run, or can.

    It waits until the number differs from ``known``, at most for ``timeout_s``.
    """
    state, host = driver.state, ""
    for key in state.plan.training_keys() if state.plan.one_host else ():
        host = host or driver.dispatch.host_of(state.roles[key].address)
    places: dict[str, Any] = {"on": driver.job.run.on, "host": host, "needs": dict(driver.job.needs.get(ROLE, {}))}
    places["on_one_host"] = state.plan.one_host
    question: dict[str, Any] = {"run": driver.job.id, "places": places, "known": known, "timeout_s": timeout_s}
    answer = await driver.peer.ask("train_run_room", **question)
    return int(answer["count"]) if answer["status"] == "OK" else _UNKNOWN
