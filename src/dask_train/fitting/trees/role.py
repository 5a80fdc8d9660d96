"""What each role does that fits boosted trees; it travels by name, and imports the library where it runs."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

from dask_train.fitting.trees.checkpoints import check_same, configuration_of
from dask_train.fitting.trees.task import TreesTask
from dask_train.role.refusals import Refusing
from dask_train.role.session import Session
from dask_train.trainers.common.agreement import SessionAgreement
from dask_train.trainers.common.entry import LoopRole, Shown
from dask_train.trainers.common.outcome import Outcome
from dask_train.trainers.common.rounds import RoundLoop

# How errors of the network between ranks look, which XGBoost and LightGBM raise as they do all others: the file of
# XGBoost's that found it, and the words of LightGBM's.
_OF_NETWORK = re.compile(r"/collective/(?!\.\.)|\bSocket \w+ error|\bConnecting to rank|\bBinding port")


@dataclass(frozen=True)
class TreesRole(LoopRole, Refusing):
    """One rank of a fit.

    Attributes
    ----------
    task
        What to fit.
    """

    task: TreesTask

    __name__ = "fit"
    ends_with_all = True

    @property
    def _library(self) -> Any:
        return import_module(f"dask_train.fitting.trees.{self.task.library}_role")

    def __call__(self, session: Session, shown: Shown | None = None) -> Outcome | None:
        """Fit; the first rank returns the estimator and what became of callbacks of ``fit``, all others None."""
        library = self._library
        task = replace(self.task, configuration=configuration_of(self.task, session, free=library.FREE))
        loop = RoundLoop(task, session, SessionAgreement(session), check=check_same)
        if shown is not None:
            shown(loop)
        try:
            grown = library.grow(task, session, loop)
            return loop.outcome(lambda: grown)
        finally:
            loop.settle()  # in the user's process nothing may be written afterwards

    def as_of(self, outcome: Outcome, epoch: int) -> dict[str, Any]:
        """Let the estimator predict with the rounds up to this one, as after early stopping."""
        self._library.end_with(outcome.header["estimator"], epoch)
        return outcome.header

    def refuses(self, error: BaseException) -> bool:
        """Return whether an error is the library's, or that of a check, and not one of the network between ranks."""
        is_of_library = type(error).__name__ in ("LightGBMError", "XGBoostError")  # which need not be imported
        return (is_of_library or super().refuses(error)) and not _OF_NETWORK.search(str(error))
