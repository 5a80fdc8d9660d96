"""The role process of ``search``, which trains one trial after the other, so that libraries are imported once.

It knows nothing of Optuna: the client asks for parameters, builds models and judges scores.
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
    """URL for checkpoints of a trial, and those of its earlier starts."""

    url: str
    earlier: list[str]


@dataclass(frozen=True, kw_only=True)
class TrialRequest:
    """The client's request to the workers of a slot to train a trial.

    Attributes
    ----------
    number
        Number of the trial.
    work
        Function that trains it: a :class:`~dask_train.trainers.common.entry.LoopRole` for models that are trained in
        loops, a :class:`~dask_train.searching.estimators.loop.UnitWork` for estimators.
    metric, mode
        Name of the score to optimize, and whether less ("min") or more ("max") of it is better.
    to_beat
        Keep weights only of epochs with a better score than this; None to keep those of the trial's best epoch.
    place
        Location of the trial's checkpoints; None for no checkpoints.
    settings
        Settings of libraries, as they were after the trial's model was built.
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
    """The client's request to end a trial after the current step."""

    number: int


@dataclass(frozen=True, kw_only=True)
class TrialDone:
    """The answer of a trial that has ended, by itself or on request.

    Attributes
    ----------
    value, epoch
        Best score of an epoch, and the first epoch that had it; None if no epoch is complete.
    parts
        Parts of the model's state by name, as they were after that epoch; or a fitted estimator. None if they were not
        to be kept.
    seconds
        Duration of the trial.
    warnings
        Warnings that a fit would have shown.
    """

    number: int
    value: float | None
    epoch: int | None
    parts: Any
    seconds: float
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class TrialFailed:
    """The answer of a trial that has raised; ``error`` is one line, ``traceback`` all of it.

    Attributes
    ----------
    without_metric
        Whether it failed because the metric of the search is not among the scores.
    """

    number: int
    error: str
    traceback: str
    seconds: float
    without_metric: bool = False


class NoMetricError(ValueError):
    """Raised if the metric of the search is not among the scores of an epoch."""


class TrialWorker(Protocol):
    """Trains the trials that a process is sent."""

    def work(self, request: TrialRequest) -> TrialDone | None:
        """Train a trial; return its answer in the first worker, None in the others."""

    def forget(self) -> None:
        """Release what a trial has left in the process, however it has ended."""


class TrialServer(ABC):
    """Role function that serves trial requests until the run ends.

    If one of several workers raises, the run fails, since the others wait for it within a step.
    """

    __name__ = "search"

    @abstractmethod
    def make_worker(self, session: Session) -> TrialWorker:
        """Return the object that trains the trials."""

    def __call__(self, session: Session) -> None:
        """Serve requests until the run ends."""
        worker = self.make_worker(session)
        while True:
            try:
                request = session.receive()
            except ClosedError:
                return
            if not isinstance(request, TrialRequest):
                continue  # an EndTrial for a trial that has ended by itself meanwhile
            began = time.monotonic()
            try:
                request.settings.apply()  # the user's build function may set others for each trial
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
            try:
                worker.forget()
            except Exception as error:  # the client may have sent the next trial already, which is none of its fault
                session.notice(f"A process of the search could not be cleared: {type(error).__name__}: {error}")
                session.stop("its process could not be cleared after a trial")
                return


def _failed(request: TrialRequest, error: Exception, began: float) -> TrialFailed:
    without_metric = isinstance(error, NoMetricError)
    return TrialFailed(
        number=request.number,
        error=str(error) if without_metric else f"{type(error).__name__}: {error}"[:2000],
        traceback=traceback.format_exc()[-10_000:],
        seconds=time.monotonic() - began,
        without_metric=without_metric,
    )
