"""What each worker of a trial of a Keras model does, in a process that trains one model after the other."""

from __future__ import annotations

import gc
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dask_train.fitting.spec import FitTask
from dask_train.trainers.common.entry import LoopRole, Shown

if TYPE_CHECKING:
    from dask_train.role.session import Session
    from dask_train.trainers.common.outcome import Outcome


@dataclass(frozen=True)
class KerasTrialRole(LoopRole):
    """Called with a session, it trains a model with others; imports Keras when it is called and no earlier."""

    task: FitTask

    __name__ = "search"

    def __call__(self, session: Session, shown: Shown | None = None) -> Outcome | None:
        """Train; the first worker returns what it has come to, all others None."""
        import keras

        from dask_train.fitting.backends import backend_of
        from dask_train.fitting.roles.synchronous import fit_synchronously

        with backend_of(keras.backend.backend()).forgetting():
            return fit_synchronously(self.task, session, shown)

    @staticmethod
    def forget() -> None:
        """Let go of graphs, names and models."""
        import keras

        keras.utils.clear_session(free_memory=False)
        gc.collect()
