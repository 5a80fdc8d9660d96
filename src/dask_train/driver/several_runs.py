"""Several runs of one client at a time: the reports of each, waiting for the next report of any, ending all of them."""

from __future__ import annotations

import asyncio
import pickle
import time
from collections.abc import Sequence
from typing import Any

from dask_train.cluster.peer import Peer
from dask_train.driver.handle import Run
from dask_train.run.state import Phase


class FollowedRun:
    """A run as a reader of several sees it: what is new since the last look, without waiting.

    Attributes
    ----------
    run
        The run.
    """

    def __init__(self, run: Run[Any]) -> None:
        self.run = run
        self._driver = run._driver
        self._num_scores = 0
        self._phase = Phase.PLACING

    @property
    def over(self) -> bool:
        """Whether it has ended, and nothing of it is left."""
        return self._driver.over

    @property
    def is_placed(self) -> bool:
        """Whether it has been given room."""
        self._phase = self._driver.state.phase
        return self._phase is not Phase.PLACING

    def new_scores(self) -> list[dict[str, Any]]:
        """Scores since the last call."""
        scores = self._driver.history.scores[self._num_scores :]
        self._num_scores += len(scores)
        return scores

    def new_values(self) -> list[tuple[str, int, Any]]:
        """Role, rank and value of what was sent since the last call."""
        values, received = self._driver.history.values, []
        while values:
            role, rank, value = values.popleft()
            received.append((role, rank, pickle.loads(value)))  # noqa: S301 - from our own role process
        return received

    def tell_trial(self, trial: dict[str, Any]) -> None:
        """Show other clients which trial of a search the run is given; plain values."""
        self._driver.trials.append(trial)

    def stop_soon(self, reason: str) -> None:
        """Ask it to end, and don't wait for that."""
        self.run.stop_soon(reason)

    async def moved(self, deadline: float) -> None:
        """Return when there is something that was not looked at yet, or at the deadline."""
        driver, history = self._driver, self._driver.history
        await driver.until(
            lambda: (
                bool(history.values)
                or len(history.scores) > self._num_scores
                or driver.state.phase is not self._phase
                or driver.over
            ),
            deadline,
        )
        self._phase = driver.state.phase  # a run that stops is not asked whether it has room any more


def wait_for_any(peer: Peer, runs: Sequence[FollowedRun], timeout_s: float) -> None:
    """Return when one of the runs has something that was not looked at yet, and after ``timeout_s`` in any case."""
    peer.run(_wait_for_any, runs, timeout_s)


async def _wait_for_any(runs: Sequence[FollowedRun], timeout_s: float) -> None:
    if not runs:
        await asyncio.sleep(timeout_s)
        return
    deadline = time.monotonic() + timeout_s
    waiting = [asyncio.ensure_future(run.moved(deadline)) for run in runs]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()


def stop_all(peer: Peer, runs: Sequence[FollowedRun], reason: str) -> None:
    """End runs in order, all at the same time; returns when nothing of them is left."""
    peer.run(_stop_all, [followed.run for followed in runs if not followed.over], reason)


async def _stop_all(runs: Sequence[Run[Any]], reason: str) -> None:
    await asyncio.gather(*(run._stop(reason) for run in runs))
