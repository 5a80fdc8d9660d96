"""A search as its worker pool sees it: a study gives trials, one after the other, and takes what comes of each.

:class:`~dask_train.searching.optuna_study.OptunaStudy` has trials that Optuna suggests, and
:class:`~dask_train.searching.estimators.grid.GridStudy` all candidates of a grid. Neither knows a cluster.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from dask_train.collections.schema.frame_schema import FrameSchema
from dask_train.searching.kept import Model
from dask_train.searching.logged import SearchLog
from dask_train.searching.worker import TrialDone, TrialRequest


def closed(_: Any) -> Any:
    """Stand for a function of a search that is over."""
    raise AssertionError("the search is over")


@dataclass(kw_only=True)
class Handed:
    """A trial that was given and is not finished.

    Attributes
    ----------
    number, params
        Its number, and what is tried, as other clients see it.
    request
        What its workers are sent; None if it could not be built.
    is_repeat
        Whether it repeats one whose workers were lost.
    trial
        Optuna's, of a study of Optuna's.
    model
        Makes what is held as the best model of what its workers send.
    began
        Monotonic seconds.
    scores
        The last ones that its workers have reported.
    is_told
        Whether Optuna knows how it ended, and only its workers still run.
    reported
        The epochs whose score Optuna knows.
    """

    number: int
    params: dict[str, Any]
    request: TrialRequest | None = field(default=None, repr=False)
    is_repeat: bool = False
    trial: Any = None
    model: Callable[[Any], Any] = field(default=closed, repr=False)
    began: float = field(default_factory=time.monotonic)
    scores: dict[str, Any] = field(default_factory=dict)
    is_told: bool = False
    reported: set[int] = field(default_factory=set)


@dataclass(frozen=True, kw_only=True)
class FinishedTrial:
    """A trial that this call has finished, as the table shows it."""

    number: int
    state: str
    params: dict[str, Any]
    value: float | None
    seconds: float
    error: str = ""
    traceback: str = field(default="", repr=False)


class Study(ABC):
    """The trials of one call of ``search``.

    Parameters
    ----------
    log
        Gets trials and their scores as well, if there is one.
    schema
        What the columns of frames are that models are fitted with.

    Attributes
    ----------
    ended
        Trials that are finished.
    handed
        Those that are not, by number.
    warnings
        What fits would have warned of, with the number of the first trial that reported it.
    best
        Number, value and model of the best one of this call; None before there is one.
    """

    def __init__(self, *, log: SearchLog | None = None, schema: FrameSchema | None = None) -> None:
        self.log, self.schema = log, schema
        self.ended: list[FinishedTrial] = []
        self.handed: dict[int, Handed] = {}
        self.warnings: dict[str, int] = {}
        self.best: tuple[int, float, Model] | None = None

    @property
    def best_ended(self) -> FinishedTrial | None:
        """Return the best trial of this call, as the table shows it."""
        return next((ended for ended in self.ended if self.best is not None and ended.number == self.best[0]), None)

    @property
    @abstractmethod
    def num_left(self) -> int:
        """Return how many trials are still to be begun."""

    @abstractmethod
    def next(self) -> Handed | None:
        """Give a trial, to be handed to a slot; None if there are no more."""

    def scored(self, handed: Handed, scores: dict[str, Any]) -> bool:
        """Take the scores of a running trial, and return whether it is to end."""
        handed.scores = scores
        return False

    @abstractmethod
    def done(self, handed: Handed, done: TrialDone) -> None:
        """Take what a trial has given."""

    @abstractmethod
    def failed(self, handed: Handed, error: str, *, traceback: str = "", seconds: float | None = None) -> None:
        """Take that a trial has raised, after that many seconds in its process."""

    @abstractmethod
    def lost(self, handed: Handed, error: str) -> None:
        """Take that the workers of a trial are gone: it is begun once more, if it is no repeat of a lost one."""

    @abstractmethod
    def end(self) -> None:
        """End the search, all of whose trials have ended.

        Raises
        ------
        RoleFailedError
            All of them have failed.
        CheckpointError
            The search can't be kept.
        """

    @abstractmethod
    def cut_short(self, why: str) -> None:
        """End the search now: what is not finished has failed, or waits for another call if the search is kept."""

    @abstractmethod
    def close(self) -> None:
        """Let go of what the search was given; its results stay."""

    @abstractmethod
    def warn(self) -> None:
        """Warn the user of what trials have reported."""

    def _note_warnings(self, done: TrialDone) -> None:
        for message in done.warnings:
            self.warnings.setdefault(message, done.number)
