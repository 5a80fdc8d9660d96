"""What tests of ``run.resize`` look at while a run changes its number of workers."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from dask_train.run.state import ResizePhase

WAIT_S = 100.0


def wait_until_told(run: Any, workers: int, wait_for: Callable[..., Any]) -> None:
    """Wait until the first worker is told that there are to be so many."""

    def is_told() -> bool:
        found = run._driver.state.resize
        return found is not None and found.size == workers and found.phase in (ResizePhase.TOLD, ResizePhase.SETTLED)

    wait_for(is_told, "the first worker is told", timeout_s=WAIT_S)


def whereabouts(function: str) -> tuple[int, int] | None:
    """Rank and step of the Keras worker in whose step this is called, by whatever thread; None elsewhere.

    ``function`` is the one that trains there.
    """
    for top in sys._current_frames().values():
        frame: Any = top
        while frame is not None:
            if frame.f_code.co_name == function and "worker" in frame.f_locals:
                return frame.f_locals["session"].rank, frame.f_locals["worker"].loop.position.steps
            frame = frame.f_back
    return None


def attempts(run: Any) -> dict[int, int]:
    """Which attempt each rank is in."""
    return {rank: role.attempt for (_, rank), role in run._driver.state.roles.items()}


def pids(run: Any) -> dict[int, int]:
    """The process of each rank."""
    return {role["rank"]: role["pid"] for role in run.status()["roles"]}
