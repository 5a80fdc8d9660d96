"""The functions of roles of ``fit``, and of trials of ``search``, in which Keras models are trained.

They import Keras, and what that role needs, when they are called and no earlier.
"""

from __future__ import annotations

import gc
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dask_train.fitting.spec import FitTask
from dask_train.trainers.common.entry import LoopObserver, LoopRole

if TYPE_CHECKING:
    from dask_train.role.session import Session
    from dask_train.trainers.common.outcome import Outcome


@dataclass(frozen=True)
class FitRole:
    """Called with a session, it does what that role has to do for a task."""

    task: FitTask

    __name__ = "fit"

    def __call__(self, session: Session) -> Any:
        """Run the role; the first worker returns a :class:`~dask_train.trainers.common.outcome.Outcome`."""
        if session.role == "ps":
            from dask_train.fitting.roles.parameter_server import serve_parameters

            return serve_parameters(self.task, session)
        if session.role == "scorer":
            from dask_train.fitting.roles.scorer import score

            return score(self.task, session)
        if "ps" in session.peers:
            from dask_train.fitting.roles.asynchronous import fit_asynchronously

            return fit_asynchronously(self.task, session)
        from dask_train.fitting.roles.synchronous import fit_synchronously

        return fit_synchronously(self.task, session)


@dataclass(frozen=True)
class KerasTrialRole(LoopRole):
    """Called with a session, it trains a model with others; imports Keras when it is called and no earlier."""

    task: FitTask

    __name__ = "search"

    def __call__(self, session: Session, observe: LoopObserver | None = None) -> Outcome | None:
        """Train; the first worker returns what it has come to, all others None."""
        import keras

        from dask_train.fitting.backends import backend_of
        from dask_train.fitting.roles.synchronous import fit_synchronously

        with backend_of(keras.backend.backend()).forgetting():
            return fit_synchronously(self.task, session, observe)

    @staticmethod
    def forget() -> None:
        """Let go of graphs, names and models."""
        import keras

        keras.utils.clear_session(free_memory=False)
        gc.collect()
