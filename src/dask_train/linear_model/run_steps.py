"""The steps of a solver in a run: reported, kept in checkpoints, resumed and stopped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dask_train.linear_model.steps import Found, SolverSteps
from dask_train.trainers.common.agreement import SessionAgreement
from dask_train.trainers.common.rank_state import RankState
from dask_train.trainers.common.step_loop import StepLoop


class RunSteps(SolverSteps):
    """Sync points of a run, which reports the loss, keeps checkpoints and stops.

    Parameters
    ----------
    loop
        Of this rank.
    has_own
        Whether the solver has a state of each rank's own.
    keeps
        Whether the run has a place for checkpoints.
    """

    def __init__(self, loop: StepLoop, *, has_own: bool, keeps: bool) -> None:
        self._loop, self.keeps = loop, keeps
        self._number = -1
        self._shared: list[dict[str, Any]] = []  # of each solver's run
        self._own: list[Any] = []
        state = RankState().shared("solvers", lambda: _copies(self._shared), self._restore)
        if has_own:
            state.own("solvers", lambda: list(self._own), self._own.extend)
        loop.keep(state)

    def _restore(self, shared: list[dict[str, Any]]) -> None:
        self._shared = _copies(shared)

    @property
    def stopped(self) -> bool:  # type: ignore[override]
        """Whether the run is to stop."""
        return self._loop.stopped

    def begin(self) -> Found | None:
        """Begin the next solver's run, or resume it."""
        self._number += 1
        if self._number == len(self._shared):
            self._shared.append({"step": 0, "state": None, "found": None})
        if self._number >= len(self._own):
            self._own.append(None)
        here = self._shared[self._number]
        self.first, self.state, self.own = here["step"], here["state"], self._own[self._number]
        if here["found"] is None:
            return None
        coef, steps, converged = here["found"]
        return coef, steps, converged

    def passed(self, step: int, loss: float, state: Sequence[Any], own: Sequence[Any] = ()) -> bool:
        """Pass the sync point: report, keep what is due, and stop where the run is to."""
        here = self._shared[self._number]
        if self.stopped or step <= here["step"]:
            return self.stopped
        here.update(step=step, state=state if self.keeps else None)
        self._own[self._number] = own if self.keeps else None
        return self._loop.step_done(loss=loss)

    def end(self, found: Found) -> None:
        """Keep what was found in place of the state; one that has not converged may take more steps later."""
        if found[2]:
            self._shared[self._number].update(state=None, found=found)
            self._own[self._number] = None


class LedAgreement(SessionAgreement):
    """Agreement of ranks whose first one decides by itself.

    The others do what its solver asks for, and pass no sync points.
    """

    def flags(self, save: bool, stop: bool) -> tuple[bool, bool]:
        """Return the flags, of the first rank."""
        return save, stop


def _copies(shared: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [dict(each) for each in shared]
