"""What each role does that fits boosted trees; it travels by name, and imports the library where it runs."""

from __future__ import annotations

from importlib import import_module

from dask_train.fitting.trees.task import Grown, TreesTask
from dask_train.role.session import Session


class TreesRole:
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
