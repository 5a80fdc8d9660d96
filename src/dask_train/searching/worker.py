"""What a role process of ``search`` does: one trial after the other, in one process that has imported libraries once.

Knows nothing of Optuna: the client asks for parameters, builds models and judges scores; here they are trained.
"""

from __future__ import annotations

import time
import traceback
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from dask_train.errors import ClosedError
from dask_train.masking import shows_no_secrets
from dask_train.settings.process import Settings

if TYPE_CHECKING:
    from dask_train.role.session import Session


@shows_no_secrets
@dataclass(frozen=True, kw_only=True)
class TrialPlace:
    """Where a trial keeps checkpoints, and where earlier starts of it have."""

    url: str
    earlier: list[str]


@dataclass(frozen=True, kw_only=True)
class TrialRequest:
    """A trial, as it is sent to the workers of a slot.

    Attributes
    ----------
    number
        Of the trial.
    work
        What is done for it: of models that are trained in loops a
        :class:`~dask_train.trainers.common.entry.LoopRole`; of estimators a
        :class:`~dask_train.searching.estimators.loop.UnitWork`.
    metric, mode
        The score of an epoch that counts, and whether less ("min") or more ("max") of it is better.
    to_beat
        Weights are kept of epochs that are better than this only; None for any.
    place
        Where it keeps checkpoints; None for nowhere.
    settings
        Of libraries, as they were once its model was made.
    """

    number: int
    work: Any
    metric: str
    mode: str
    to_beat: float | None
    place: TrialPlace | None = None
    settings: Settings = field(default_factory=Settings.here)


@dataclass(frozen=True, kw_only=True)
class EndTrial:
    """The trial of this number is to end after the step in hand."""

    number: int


@dataclass(frozen=True, kw_only=True)
class TrialDone:
    """A trial is finished, at its end or where it was asked to end.

    Attributes
    ----------
    value, epoch
        The best score of an epoch, and the first epoch that had it; None without any whole epoch.
    parts
        What was trained of the model, by the names of parts of its state, as it was after that epoch; or a fitted
        estimator. None if that was not to be kept.
    seconds
        From its arrival to its end.
    warnings
        What a fit would have warned of.
    """

    number: int
    value: float | None
    epoch: int | None
    parts: Any
    seconds: float
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class TrialFailed:
    """A trial has raised; ``error`` is one line, ``traceback`` all of it.

    Attributes
    ----------
    without_metric
        Whether it was for the metric that counts, which is not among the scores.
    """

    number: int
    error: str
    traceback: str
    seconds: float
    without_metric: bool = False


class NoMetricError(ValueError):
    """The metric that counts is not among the scores of an epoch."""


class TrialWorker(Protocol):
    """What a process does with each request."""

    def work(self, request: TrialRequest) -> TrialDone | None:
        """Do it; None in workers that are not the first."""

    def forget(self) -> None:
        """Give back what a request has left in the process, however it has ended."""


class TrialServer(ABC):
    """Called with a session, it does what it is sent, until the run ends.

    If one of several workers has raised, none continues, since the others wait for it in mid-step: the run fails.
    """

    __name__ = "search"

    @abstractmethod
    def make_worker(self, session: Session) -> TrialWorker:
        """Return what does it."""

    def __call__(self, session: Session) -> None:
        """Serve requests until the run ends."""
        worker = self.make_worker(session)
        while True:
            try:
                request = session.receive()
            except ClosedError:
                return
            if not isinstance(request, TrialRequest):
                continue  # the end of a trial that has ended by itself meanwhile
            began = time.monotonic()
            try:
                request.settings.apply()  # others than before where the user's function sets some for each trial
                outcome: TrialDone | TrialFailed | None = worker.work(request)
            except Exception as error:
                outcome = _failed(request, error, began)
                if session.size > 1:
                    if outcome.without_metric:
                        session.send(outcome)
                    raise
            if outcome is not None:
                session.send(outcome)  # first: the client makes the next trial meanwhile
            del outcome, request
            worker.forget()


def _failed(request: TrialRequest, error: Exception, began: float) -> TrialFailed:
    without_metric = isinstance(error, NoMetricError)
    return TrialFailed(
        number=request.number,
        error=str(error) if without_metric else f"{type(error).__name__}: {error}"[:2000],
        traceback=traceback.format_exc()[-10_000:],
        seconds=time.monotonic() - began,
        without_metric=without_metric,
    )
