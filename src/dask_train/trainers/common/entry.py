"""The function of the workers of a kind of model that is described by a trainer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from dask_train.role.session import Session
from dask_train.trainers.common.agreement import SessionAgreement
from dask_train.trainers.common.loop import TrainingLoop
from dask_train.trainers.common.outcome import Outcome
from dask_train.trainers.common.task import LoopTask


class _Spec(Protocol):
    def worker(self, session: Session, loop: TrainingLoop) -> None: ...


@dataclass(frozen=True)
class SpecRole:
    """Called with a session, it trains what a spec describes."""

    spec: _Spec
    task: LoopTask

    __name__ = "fit"

    def __call__(self, session: Session) -> Outcome | None:
        """Train; the first worker returns the shared parts of the state, all others None."""
        loop = TrainingLoop(self.task, session, SessionAgreement(session))
        try:
            self.spec.worker(session, loop)
            return loop.outcome()
        finally:
            loop.settle()  # in the user's process nothing may be written afterwards
