"""The loop of a rank whose solver goes over all of its rows in each step, and tells which steps there are."""

from __future__ import annotations

from typing import Any

from dask_train.trainers.common.rounds import RoundLoop
from dask_train.trainers.common.score_names import scores_of


class StepLoop(RoundLoop):
    """The sync points of one rank between steps of a solver, for as many of them as it takes: a step is a round.

    Parameters
    ----------
    task, session, agreement
        As of :class:`~dask_train.trainers.common.rounds.RoundLoop`.
    """

    unit = "step"

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
        step = self.position.steps + 1
        self._session._link.moved(f"past step {step}", batches=1)  # for a rule such as "steps >= 10"
        return self.round_done(**scores)

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
