"""What the workers of a run do that train a model in a loop; and those whose kind of model a trainer describes."""

from __future__ import annotations

import gc
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from dask_train.role.session import Session
from dask_train.trainers.common.agreement import SessionAgreement
from dask_train.trainers.common.loop import TrainingLoop
from dask_train.trainers.common.outcome import Outcome
from dask_train.trainers.common.sync_point import SyncedLoop
from dask_train.trainers.common.task import LoopTask

# Called with the loop of a worker before its first step, by code that looks at what is trained meanwhile.
LoopObserver = Callable[[SyncedLoop], Any]


class _Spec(Protocol):
    def worker(self, session: Session, loop: TrainingLoop) -> None: ...


class LoopRole(ABC):
    """What each worker does: a frozen dataclass that travels, with the task of its loop.

    Attributes
    ----------
    task
        How long to train, and when to keep a checkpoint.
    ends_with_all
        Whether what the call returns tells the model of each earlier epoch, by :meth:`as_of`. A search then asks for
        that of the best epoch in the end, and else for a copy after each epoch that is the best one so far.
    """

    task: LoopTask
    ends_with_all: ClassVar[bool] = False

    @abstractmethod
    def __call__(self, session: Session, observe: LoopObserver | None = None) -> Outcome | None:
        """Train; the first worker returns what it has come to, all others None."""

    def as_of(self, outcome: Outcome, epoch: int) -> dict[str, Any]:
        """Return what was trained as it was after an earlier epoch, counted from 0; where :attr:`ends_with_all`.

        Parameters
        ----------
        outcome
            What the call has returned.
        epoch
            One that has ended.
        """
        raise NotImplementedError

    @staticmethod
    def forget() -> None:
        """Let go of what a call has left in this process, where another model is trained after it."""
        gc.collect()


@dataclass(frozen=True)
class SpecRole(LoopRole):
    """Called with a session, it trains what a spec describes."""

    spec: _Spec
    task: LoopTask

    __name__ = "fit"

    def __call__(self, session: Session, observe: LoopObserver | None = None) -> Outcome | None:
        """Train; the first worker returns the shared parts of the state, all others None."""
        loop = TrainingLoop(self.task, session, SessionAgreement(session))
        if observe is not None:
            observe(loop)
        try:
            self.spec.worker(session, loop)
            return loop.outcome()
        finally:
            loop.settle()  # in the user's process nothing may be written afterwards
