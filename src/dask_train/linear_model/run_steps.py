"""The steps of a solver in a run: reported, kept in checkpoints, resumed and stopped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

import numpy as np

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
    partitions
        Which ones this rank has, where a lost rank is replaced in place. Default: None, it is not.
    """

    def __init__(self, loop: StepLoop, *, has_own: bool, keeps: bool, partitions: bytes | None = None) -> None:
        self._loop, self.replaceable = loop, partitions is not None
        self.keeps = keeps or self.replaceable
        self._number = -1
        self._shared: list[dict[str, Any]] = []  # of each solver's run
        self._own: list[Any] = []
        self._ended: dict[int, Found] = {}  # by number; also those that have not converged
        self._calls = _Remembered()
        self._tell: Callable[[int, float], object] = lambda step, loss: None  # noqa: ARG005
        # The rank that leads has the state of the solver; others have numbers of steps.
        state = RankState().shared("solvers", lambda: _copies(self._shared), self._restore, led=self.replaceable)
        if has_own:
            state.own("solvers", lambda: list(self._own), self._own.extend)
        if self.replaceable:
            state.passing("partitions", lambda: partitions, lambda theirs: self._check_partitions(theirs, partitions))
            loop.carry(self._carried, self._take_over)
        loop.keep(state)

    def _restore(self, shared: list[dict[str, Any]]) -> None:
        self._shared = _copies(shared)

    def _check_partitions(self, theirs: bytes | None, mine: bytes | None) -> None:
        if theirs != mine:
            self._loop.start_all_again("the rows of a lost worker are shared out anew")

    def _carried(self) -> tuple[list[dict[str, Any]], dict[int, Found], list[tuple[str, Any]]]:
        return _copies(self._shared), dict(self._ended), list(self._calls.known)

    def _take_over(self, carried: tuple[list[dict[str, Any]], dict[int, Found], list[tuple[str, Any]]]) -> None:
        shared, self._ended, self._calls.known = carried
        if not self._shared:  # else it is that of the rank that leads, from its mirror
            self._shared = shared

    @property
    def stopped(self) -> bool:  # type: ignore[override]
        """Whether the run is to stop."""
        return self._loop.stopped

    def begin(self) -> Found | None:
        """Begin the next solver's run, or resume it."""
        self._number += 1
        self._calls.begin()
        if self._number == len(self._shared):
            self._shared.append({"step": 0, "state": None, "found": None})
        self._own.extend([None] * (self._number + 1 - len(self._own)))
        if (ended := self._ended.get(self._number)) is not None:
            return ended
        here = self._shared[self._number]
        self.first, self.state, self.own = here["step"], here["state"], self._own[self._number]
        if here["found"] is None:
            return None
        coef, steps, converged = here["found"]
        return coef, steps, converged

    def passed(self, step: int, loss: float, state: Sequence[Any], own: Sequence[Any] = ()) -> bool:
        """Pass the sync point: report, keep what is due, and stop where the run is to."""
        here = self._shared[self._number]
        if self.replaceable and self._loop.is_behind_step and step == here["step"]:
            return self._loop.pass_behind_step(loss=loss)
        if step < here["step"]:  # of a solver that takes its steps again, and stops where it had come to
            return False
        if self.stopped or step == here["step"]:
            return self.stopped
        self._tell(step, loss)
        here.update(step=step, state=state if self.keeps else None)
        self._own[self._number] = own if self.keeps else None
        return self._loop.step_done(loss=loss)

    def coordinates(self, means: np.ndarray, scale: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the coordinates of the solver's run, the first ones: rows that are cut otherwise have others."""
        means, scale = self._shared[self._number].setdefault("coordinates", (means, scale))
        return means, scale

    def end(self, found: Found) -> None:
        """Keep what was found in place of the state; one that has not converged may take more steps later."""
        if found[2]:
            self._shared[self._number].update(state=None, found=found)
            self._own[self._number] = None
        self._ended[self._number] = found
        self._calls.end()

    def lead(self, tell: Callable[[int, float], object]) -> None:
        """Have the other ranks told of each sync point, where they pass it, too."""
        if self.replaceable:
            self._tell = tell

    def catch_up(self) -> None:
        """Pass the sync point of the step that a lost rank has taken, in its place."""
        if self.replaceable and self._loop.is_behind_step:
            self._loop.pass_behind_step()

    def enter(self) -> None:
        """Remember no more calls until the solver ends."""
        if not self._calls.enter():
            self._loop.start_all_again("a worker that takes a lost one's place has made other calls before its step")

    @property
    def knows_next(self) -> bool:
        """Return whether the next call's result is remembered."""
        return self._calls.knows_next

    def remembered(self, call: str, make: Callable[[], Any]) -> Any:
        """Return what a call comes to, or what it came to before this rank took a lost one's place."""
        if not self.replaceable:
            return make()
        try:
            return self._calls.answer(call, make)
        except LookupError:
            self._loop.start_all_again("a worker that takes a lost one's place makes other calls than that one")


class _Remembered:
    """What collective calls outside of steps came to: one that takes a lost rank's place does not make them again.

    Calls of a solver's run are forgotten when it ends, as what it has found is known then.

    Attributes
    ----------
    known
        Calls, and what they came to.
    """

    def __init__(self) -> None:
        self.known: list[tuple[str, Any]] = []
        self._next = self._begun = 0
        self._is_inside = False

    @property
    def knows_next(self) -> bool:
        """Return whether the next call is known."""
        return self._next < len(self.known)

    def answer(self, call: str, make: Callable[[], Any]) -> Any:
        """Return what a call came to, or make it.

        Raises
        ------
        LookupError
            Another one was made then.
        """
        if self.knows_next:
            theirs, result = self.known[self._next]
            if theirs != call:
                raise LookupError
            self._next += 1
            return deepcopy(result)
        result = make()
        if not self._is_inside:
            self.known.append((call, deepcopy(result)))  # its caller may change it
            self._next = len(self.known)
        return result

    def begin(self) -> None:
        """Begin a solver's run."""
        self._begun = self._next

    def enter(self) -> bool:
        """Come to where the steps of the solver begin; return whether all that is known was asked for."""
        self._is_inside = True
        return not self.knows_next

    def end(self) -> None:
        """End a solver's run."""
        del self.known[self._begun :]
        self._next, self._is_inside = self._begun, False


class LedAgreement(SessionAgreement):
    """Agreement of ranks whose first one decides by itself.

    The others do what its solver asks for, and pass no sync points.
    """

    def flags(self, save: bool, stop: bool) -> tuple[bool, bool]:
        """Return the flags, of the first rank."""
        return save, stop


def _copies(shared: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [dict(each) for each in shared]
