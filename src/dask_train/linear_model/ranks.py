"""The ranks that fit a linear model together: those of a run, or this process alone; one of them leads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from dask_train.linear_model.steps import UNASKED, SolverSteps


class Ranks(Protocol):
    """A :class:`~dask_train.role.session.Session`, as far as solvers use it, and the sync points of their steps."""

    @property
    def steps(self) -> SolverSteps:
        """Return what happens between two steps."""

    @property
    def world_rank(self) -> int | None:
        """This one's number."""

    def partitions(self) -> Iterator[Any]:
        """Return this rank's own."""

    def all_reduce(self, arrays: Any, op: str = "sum") -> Any:
        """Arrays, combined over all ranks."""

    def broadcast(self, arrays: Any, root: int = 0) -> Any:
        """Return the arrays of one rank."""

    def all_gather(self, rows: Any) -> Any:
        """Return the rows of all ranks."""


class Alone:
    """A world of one rank, with all rows; see :class:`Ranks`."""

    world_rank = 0

    def __init__(self, *columns: Any) -> None:
        self._columns = columns
        self.steps = UNASKED

    def partitions(self) -> Iterator[Any]:
        """Yield all rows as one."""
        yield self._columns

    def all_reduce(self, arrays: Any, op: str = "sum") -> Any:  # noqa: ARG002 - of one rank all are the same
        """Return the arrays: those of one rank are what all ranks have together."""
        return arrays

    def broadcast(self, arrays: Any, root: int = 0) -> Any:  # noqa: ARG002
        """Return the arrays: they are this rank's own."""
        return arrays

    def all_gather(self, rows: Any) -> Any:
        """Return the rows: all are here."""
        return rows


class SessionRanks:
    """The ranks of a run, each of which has a session; see :class:`Ranks`.

    Parameters
    ----------
    session : Session
        This rank's own.
    parts : list
        Its partitions, which have been read. They are taken out of the list.
    steps : SolverSteps
        What happens between two steps of the solver; nothing by default.

    Attributes
    ----------
    parts, steps
        As above; parts are those that are left.
    """

    def __init__(self, session: Any, parts: list[Any], steps: SolverSteps = UNASKED) -> None:
        self._session, self.parts, self.steps = session, parts, steps

    def partitions(self) -> Iterator[Any]:
        """Yield this rank's own, once: what is made of them may take their place in memory."""
        while self.parts:
            yield self.parts.pop(0)

    def __getattr__(self, name: str) -> Any:
        """Return what a session has besides."""
        return getattr(self._session, name)


Evaluate = Callable[[np.ndarray, int], list[np.ndarray]]


# What the leading rank asks for in place of derivatives of an order.
_END, _STEP = -1, -2


def led(
    ranks: Ranks,
    size: int,
    evaluate: Evaluate,
    solve: Callable[[Evaluate], Sequence[Any]],
    steps: SolverSteps = UNASKED,
) -> np.ndarray | Any:
    """Return what a solver finds that runs in the first rank, while the others sum with it.

    A solver is then a function of what is summed, and takes each decision once: processors of several kinds may round
    differently, and ranks that stopped at different steps would wait for each other.

    Parameters
    ----------
    ranks
        The ranks.
    size
        How many coefficients there are.
    evaluate
        Sums something of coefficients, of the order that is given with them, over all ranks.
    solve
        Is given a function like it, and returns coefficients, the number of steps, and whether it has converged.
    steps
        What happens between two of its steps, which others are told of where they have a part in it.

    Returns
    -------
    np.ndarray
        Float64 ``(size + 2,)``, the same on all ranks: coefficients, steps, whether it has converged.
    """

    def told(order: float, coef: np.ndarray) -> np.ndarray:
        message: np.ndarray = ranks.broadcast(np.concatenate([[order], coef, np.zeros(size + 3 - 1 - len(coef))]))
        return message

    if ranks.world_rank == 0:
        steps.lead(lambda step, loss: told(_STEP, np.array([step, loss])))
        coef, taken, converged = solve(lambda coef, order: evaluate(told(order, coef)[1 : size + 1], order))
        return told(_END, np.concatenate([coef, [taken, converged]]))[1:]
    steps.catch_up()
    while (order := int((word := told(0, np.zeros(size)))[0])) != _END:
        if order == _STEP:
            steps.passed(int(word[1]), float(word[2]), ())
        else:
            evaluate(word[1 : size + 1], order)
    return word[1:]
