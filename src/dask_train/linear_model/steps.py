"""What happens between two steps of a solver: where it resumes, what it tells, and whether it stops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

# Coefficients, steps, and whether the solver has converged.
Found = tuple[np.ndarray, int, bool]


class SolverSteps:
    """Sync points at which nothing happens: of a fit in this process, and of a sample's.

    A fit is one solver's run after the other, one for each target. Each begins with :meth:`begin`, calls
    :meth:`passed` at every step, and ends with :meth:`end`.

    Attributes
    ----------
    first
        The step that the solver begins with: 0, or the one that it resumes at.
    state, own
        What it resumes from: what all ranks share, and what this rank has for itself; None at step 0.
    keeps
        Whether states are asked for at all.
    stopped
        Whether the run is to stop.
    replaceable
        Whether one rank alone may resume, in place of a lost one: then none may leave a call out because of what it
        knows of an earlier one.
    """

    first: int = 0
    state: Any = None
    own: Any = None
    keeps: bool = False
    stopped: bool = False
    replaceable: bool = False

    def begin(self) -> Found | None:
        """Begin the next solver's run; return what it has found where that is known already."""
        return None

    def passed(self, step: int, loss: float, state: Sequence[Any], own: Sequence[Any] = ()) -> bool:  # noqa: ARG002
        """Pass the sync point before a step; where it is the first one, nothing happens.

        Parameters
        ----------
        step
            How many steps have been taken.
        loss
            What is minimised, at this point.
        state, own
            What the solver would resume from: plain values and arrays, which it does not change any more.

        Returns
        -------
        bool
            Whether the solver is to return what it has.
        """
        return False

    def coordinates(self, means: np.ndarray, scale: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the coordinates of the solver's run: these, or those in which the state is that it resumes from."""
        return means, scale

    def end(self, found: Found) -> None:
        """End the solver's run; of one that has converged nothing else is kept."""

    # Where one rank alone may resume

    def lead(self, tell: Callable[[int, float], object]) -> None:
        """Have ``tell`` called with step and loss before each sync point that others pass when they are told."""

    def catch_up(self) -> None:
        """Pass the sync point of the step that the lost rank had taken, if this rank has taken its place after one."""

    def enter(self) -> None:
        """Note that one which resumes makes none of the collective calls from here to the step at which it does."""

    @property
    def knows_next(self) -> bool:
        """Return whether the next call's result is remembered, so that this rank's part in it does not count."""
        return False

    def remembered(self, call: str, make: Callable[[], Any]) -> Any:  # noqa: ARG002 - nothing is remembered here
        """Return what a collective call comes to: ``make()``, or what others remember that have made it already."""
        return make()


# Of a solver that is not asked between its steps.
UNASKED = SolverSteps()
