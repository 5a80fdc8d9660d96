"""What a rank of a linear model's fit is in a run: its function, and what its process imports, which is not Dask."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dask_train.frameworks.base import Framework
from dask_train.linear_model.ranks import Ranks
from dask_train.role.refusals import Refusing


class Linear(Framework):
    """The adapter for none, whose processes have also imported the solvers."""

    imports = ("numpy", "scipy.linalg", "dask_train.role.main", "dask_train.linear_model.fitting")


class OfRank(Refusing):
    """A role's function: a task whose result comes back once."""

    __name__ = "linear-model"

    def __init__(self, task: Callable[[Ranks], Any]) -> None:
        self._task = task

    def __call__(self, session: Any) -> Any:
        """The result in the first rank, and None in the others."""
        found = self._task(session)
        return found if session.rank == 0 else None
