"""What each role does that fits boosted trees; it travels by name, and imports the library where it runs."""

from __future__ import annotations

import re
from dataclasses import replace
from importlib import import_module
from typing import Any

from dask_train.fitting.trees.checkpoints import check_same, configuration_of
from dask_train.fitting.trees.task import TreesTask
from dask_train.role.refusals import Refusing
from dask_train.role.session import Session
from dask_train.trainers.common.agreement import SessionAgreement
from dask_train.trainers.common.outcome import Outcome
from dask_train.trainers.common.rounds import RoundLoop

# How errors of the network between ranks look, which XGBoost and LightGBM raise as they do all others: the file of
# XGBoost's that found it, and the words of LightGBM's.
_OF_NETWORK = re.compile(r"/collective/(?!\.\.)|\bSocket \w+ error|\bConnecting to rank|\bBinding port")


class TreesRole(Refusing):
    """One rank of a fit.

    Parameters
    ----------
    task
        What to fit.
    """

    __name__ = "fit"

    def __init__(self, task: TreesTask) -> None:
        self._task = task

    def __call__(self, session: Session) -> Outcome | None:
        """Fit; the first rank returns the estimator and what became of callbacks of ``fit``, all others None."""
        library: Any = import_module(f"dask_train.fitting.trees.{self._task.library}_role")
        task = replace(self._task, configuration=configuration_of(self._task, session, free=library.FREE))
        loop = RoundLoop(task, session, SessionAgreement(session), check=check_same)
        try:
            grown = library.grow(task, session, loop)
            return loop.outcome(lambda: grown)
        finally:
            loop.settle()  # in the user's process nothing may be written afterwards

    def refuses(self, error: BaseException) -> bool:
        """Tell whether an error is the library's, or that of a check, and not one of the network between ranks."""
        is_of_library = type(error).__name__ in ("LightGBMError", "XGBoostError")  # which need not be imported
        return (is_of_library or super().refuses(error)) and not _OF_NETWORK.search(str(error))
