"""What each role does that fits boosted trees; it travels by name, and imports the library where it runs."""

from __future__ import annotations

import re
from importlib import import_module

from dask_train.fitting.trees.task import Grown, TreesTask
from dask_train.role.refusals import Refusing
from dask_train.role.session import Session

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

    def __call__(self, session: Session) -> Grown | None:
        """Fit; the estimator in the first rank, None in the others."""
        library = import_module(f"dask_train.fitting.trees.{self._task.library}_role")
        grown: Grown = library.grow(self._task, session)
        return grown if session.world_rank == 0 else None

    def refuses(self, error: BaseException) -> bool:
        """Tell whether an error is the library's, or that of a check, and not one of the network between ranks."""
        is_of_library = type(error).__name__ in ("LightGBMError", "XGBoostError")  # which need not be imported
        return (is_of_library or super().refuses(error)) and not _OF_NETWORK.search(str(error))
