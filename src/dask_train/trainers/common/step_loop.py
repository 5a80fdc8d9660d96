"""The loop of a rank whose solver goes over all of its rows in each step, and tells which steps there are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dask_train.collectives.formation import State
from dask_train.role.session import Session
from dask_train.trainers.common.agreement import Agreement
from dask_train.trainers.common.rounds import RoundLoop
from dask_train.trainers.common.score_names import scores_of
from dask_train.trainers.common.task import LoopTask


class StepLoop(RoundLoop):
    """The sync points of one rank between steps of a solver, for as many of them as it takes: a step is a round.

    Parameters
    ----------
    task, session, agreement
        As of :class:`~dask_train.trainers.common.rounds.RoundLoop`.
    """

    unit = "step"

    def __init__(self, task: LoopTask, session: Session, agreement: Agreement) -> None:
        super().__init__(task, session, agreement)
        self._take_carried: Callable[[], Any] = lambda: None
        self._restore_carried: Callable[[Any], Any] = lambda _: None

    def carry(self, take: Callable[[], Any], restore: Callable[[Any], Any]) -> None:
        """Let one that takes a lost rank's place have what others hold besides the state; before :meth:`keep`.

        Parameters
        ----------
        take
            Called after each step: returns a value that does not change any more, alike in all ranks.
        restore
            Called with that value of the last step that the lost rank has taken, when the state is restored.
        """
        self._take_carried, self._restore_carried = take, restore

    def step_done(self, /, **scores: Any) -> bool:
        """Pass the sync point after a step.

        Parameters
        ----------
        **scores
            Of the step; those of the first rank.

        Returns
        -------
        bool
            Whether training ends here, for all ranks.
        """
        self.mirror_step()
        if (group := self._agreement.replaceable) is not None:
            group.confirm()  # the mirrors of all are whole
        step = self.position.steps + 1
        self._session._link.moved(f"past step {step}", batches=1)  # for a rule such as "steps >= 10"
        return self.round_done(**scores)

    def pass_behind_step(self, /, **scores: Any) -> bool:
        """Pass the sync point after the step that the lost rank has taken, in its place; else as :meth:`step_done`."""
        self._behind_step = False
        return self._end_round(scores)

    def fit_done(self, /, **scores: Any) -> None:
        """Report the scores of the whole fit, as of the only epoch of a search's trial, unless it was stopped before.

        Parameters
        ----------
        **scores
            Those of the first rank.
        """
        if self.leads and not self.stopped:
            self._session.report(epoch=0, **scores_of(scores))

    def rounds_done(self) -> None:
        """Keep what was found in the end, which the checkpoint of the last step has not; all ranks at once."""
        if self._task.checkpoint is not None and not self.stopped:
            self._save()

    def _alike(self) -> dict[str, Any]:
        return {**super()._alike(), "carried": self._take_carried(), "configuration": self._configuration}

    def _take_place(self, received: State) -> None:
        super()._take_place(received)
        _, alike = received.shared
        self._configuration = alike["configuration"]
        self._restore_carried(alike["carried"])
