"""The function of every role of ``fit``: imports Keras, and what that role needs, when it is called and no earlier."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dask_train.fitting.spec import FitTask

if TYPE_CHECKING:
    from dask_train.role.session import Session


@dataclass(frozen=True)
class FitRole:
    """Called with a session, it does what that role has to do for a task."""

    task: FitTask

    __name__ = "fit"

    def __call__(self, session: Session) -> Any:
        """Run the role; the first worker returns an :class:`~dask_train.fitting.spec.Outcome`, others None."""
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
