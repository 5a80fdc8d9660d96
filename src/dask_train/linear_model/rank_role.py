"""What a rank of a linear model's fit is in a run: its function, and what its process imports, which is not Dask."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dask_train.collectives import ProcessGroup
from dask_train.collectives.replaceable import ReplaceableGroup
from dask_train.data.indicators import Indicators
from dask_train.data.row_sums import row_sums
from dask_train.frameworks.base import Framework
from dask_train.frameworks.fitting import FitFramework
from dask_train.linear_model.group_ranks import GroupRanks
from dask_train.linear_model.ranks import Ranks, SessionRanks
from dask_train.linear_model.run_steps import LedAgreement, RunSteps
from dask_train.linear_model.validating import ScoredRows, picked
from dask_train.role.refusals import Refusing
from dask_train.role.session import Session
from dask_train.trainers.common.agreement import Agreement, GroupAgreement, SessionAgreement
from dask_train.trainers.common.entry import LoopObserver, LoopRole
from dask_train.trainers.common.group import process_group
from dask_train.trainers.common.outcome import Outcome
from dask_train.trainers.common.step_loop import StepLoop
from dask_train.trainers.common.task import LoopTask

# What an outcome has of what was solved.
FOUND = "found"
# Sums that tell rows apart: of each array, and of which rows of them belong together.
_SUMS = ("X", "y", "sample_weight", "rows of X with those of y")


class Linear(Framework):
    """The adapter for none, whose processes have also imported the solvers."""

    imports = (
        "numpy",
        "scipy.linalg",
        "dask_train.role.main",
        "dask_train.linear_model.fitting",
        "dask_train.linear_model.rank_role",
    )


class LinearInPlace(FitFramework):
    """The adapter of fits whose lost workers are replaced in place."""

    name, imports = Linear.name, Linear.imports

    def __init__(self) -> None:
        super().__init__(Linear(), in_place=True)

    @property
    def rows_are_known(self) -> bool:
        """Return false: rows are counted once, before the first step, and a new worker does not count them again."""
        return False


@dataclass(frozen=True, kw_only=True)
class LinearRole(LoopRole, Refusing):
    """Called with a session, it solves a problem; the first rank returns what was found.

    Attributes
    ----------
    problem
        Called with the ranks that solve it.
    task
        Of the loop.
    is_held
        Whether the user has the run, and may stop it.
    places
        The numbers of the columns that are features, targets and perhaps weights. Default: all, in this order.
    indicators
        Makes features of rows with codes of categories, if places are told. Default: there are none.
    validation
        What is scored in the end, as the only epoch of a trial of a search. Default: nothing.
    in_place
        Whether a lost rank is replaced while the others wait; needs the adapter :class:`LinearInPlace`.
    """

    problem: Callable[[Ranks], Any]
    task: LoopTask
    is_held: bool = True
    places: tuple[int, ...] | None = None
    indicators: Indicators | None = None
    validation: ScoredRows | None = None
    in_place: bool = False

    __name__ = "linear-model"
    ends_with_all = True

    def __call__(self, session: Session, observe: LoopObserver | None = None) -> Outcome | None:
        """Solve it; all ranks but the first return None.

        Raises
        ------
        ValueError
            The data can't be of such a model.
        CheckpointError
            The last checkpoint is of another fit.
        """
        with self._met(session) as group:
            takes_place = isinstance(group, ReplaceableGroup) and group.received is not None
            if takes_place:
                session._count_no_rows()  # the lost one has come back from them, and no step is repeated
            ranks = self._ranks(session, group)
            task = self.task
            if task.checkpoint is not None and not takes_place:
                task = replace(task, configuration={**task.configuration, "data": _told_apart(ranks, ranks.parts)})
            loop = StepLoop(task, session, self._agreement(session, group))
            if observe is not None:
                observe(loop)
            try:
                outcome = self._solved(session, ranks, loop)
                if isinstance(group, ReplaceableGroup):
                    group.confirm()  # one that is lost before needs the others
                return outcome
            finally:
                loop.settle()

    def _solved(self, session: Session, ranks: SessionRanks, loop: StepLoop) -> Outcome | None:
        # To agree costs a symmetric solver another sum in each step, and in `fit` of an estimator it would not be used.
        if self.is_held or not self._is_symmetric:
            mine = session.partition_numbers.tobytes() if self.in_place else None
            keeps = self.task.checkpoint is not None
            ranks.steps = RunSteps(loop, has_own=self._is_symmetric, keeps=keeps, partitions=mine)
        solution = self.problem(ranks)
        loop.rounds_done()
        if self.validation is not None:
            loop.fit_done(**self.validation.scores(self.problem, solution, session))
        return loop.outcome(lambda: {FOUND: solution})

    @property
    def _is_symmetric(self) -> bool:
        return getattr(self.problem, "solver", None) == "admm"

    @contextmanager
    def _met(self, session: Session) -> Iterator[ProcessGroup | None]:
        """Meet the other ranks, if lost ones are replaced; else they meet with the first call."""
        if not self.in_place:
            yield None
            return
        with process_group(self.task, session) as group:
            yield group

    def _ranks(self, session: Session, group: ProcessGroup | None) -> SessionRanks:
        parts = list(session.partitions())
        if self.places is not None:
            parts = [picked(part, self.places, self.indicators) for part in parts]
        return SessionRanks(session, parts) if group is None else GroupRanks(session, parts, group)

    def _agreement(self, session: Session, group: ProcessGroup | None) -> Agreement:
        if group is not None:
            return GroupAgreement(group)
        return (SessionAgreement if self._is_symmetric else LedAgreement)(session)

    def as_of(self, outcome: Outcome, epoch: int) -> dict[str, Any]:  # noqa: ARG002 - there is one
        """Return what was found."""
        return outcome.header


def _told_apart(ranks: Any, parts: Sequence[Any]) -> dict[str, Any]:
    """Return sums over the rows of all ranks, which are the same however the rows are cut, and in which order."""
    mine = np.zeros(len(_SUMS), np.uint64)
    for columns in parts:
        *of_each, together = row_sums(columns)
        mine += np.array([*of_each, *[0] * (len(_SUMS) - len(columns) - 1), together], np.uint64)
    sums = ranks.all_reduce(mine).tolist()
    return {"rows": ranks.num_rows, **{name: f"{total:016x}" for name, total in zip(_SUMS, sums, strict=True)}}
