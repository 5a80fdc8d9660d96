"""Slots: long-lived runs of the cluster, each of which trains one trial after the other, until none is left."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from dask_train.cluster.peer import Peer
from dask_train.driver.handle import Run
from dask_train.driver.result import leave_result
from dask_train.driver.several_runs import FollowedRun, stop_all, wait_for_any
from dask_train.errors import DaskTrainError, DataError, PlacementError, RoleFailedError
from dask_train.frameworks.base import Framework
from dask_train.report.search_progress import SearchDisplay
from dask_train.searching.study import Handed, Study
from dask_train.searching.worker import EndTrial, TrialDone

# How often one looks at the cluster's size and at the clock while nothing happens.
LOOK_S = 0.5
# Seconds after which another slot is tried when one found no room or was lost.
AGAIN_S = 2.0
# This many slots in a row, and twice as many as the cluster holds, may be lost before any of them has trained a trial.
MAX_LOSSES = 5

# Letters of a parameter's name, or of its value, that are shown to other clients.
MAX_TEXT = 40
_FINISHED = "its search has no more trials"

S = TypeVar("S", bound=Study)
R = TypeVar("R")


@dataclass(frozen=True, kw_only=True)
class PoolSettings:
    """Which processes train trials, and how many.

    Attributes
    ----------
    framework
        The adapter of their framework; the one that takes the most memory, where trials decide.
    workers
        Number of processes that train a trial together.
    concurrency
        Number of trials that are trained at a time, at most; None for as many as the cluster holds.
    """

    framework: Framework
    workers: int = 1
    concurrency: int | None = None


class PoolSlot:
    """One run, and the trial that it trains.

    Attributes
    ----------
    handed
        The trial; None while it waits for one.
    is_closing
        Whether it has been asked to end.
    """

    def __init__(self, run: Run[Any]) -> None:
        self.followed = FollowedRun(run)
        self.handed: Handed | None = None
        self.is_closing = False

    def hand(self, handed: Handed, search: str) -> None:
        """Send it a trial of a search."""
        self.handed = handed
        self.followed.tell_trial(_fields_of_trial(handed, search))
        self.followed.run.send(handed.request)

    def close(self) -> None:
        """Let it end, without waiting for that."""
        self.is_closing = True
        self.followed.stop_soon(_FINISHED)

    def error(self) -> DaskTrainError | None:
        """Return how its run, which is over, has failed; without frames, which would keep what the search was given."""
        try:
            self.followed.run.result()
        except DaskTrainError as error:
            return error.with_traceback(None)
        return None


class Slots:
    """Trains trials until there are none left.

    At most one slot waits for room at a time; when it has some, the next one asks. So there are as many as the cluster
    holds, and what it holds more of later is used as well.

    Parameters
    ----------
    peer, settings
        Where, and which processes.
    study
        Gives the trials.
    start
        Starts the run of a slot; None if there is no trial for it.
    capacity
        Tells how many roles the cluster can hold.
    """

    def __init__(
        self,
        peer: Peer,
        settings: PoolSettings,
        study: Study,
        *,
        start: Callable[[], Run[Any] | None],
        capacity: Callable[[], int],
    ) -> None:
        self._peer, self._settings, self._study = peer, settings, study
        self._start, self._capacity = start, capacity
        self._slots: list[PoolSlot] = []
        self._name = f"search-{uuid.uuid4().hex[:6]}"
        self._not_before = self._looked = 0.0
        self._room = 0
        self._losses = 0

    def train(self, update: Callable[[Sequence[PoolSlot]], Any]) -> None:
        """Train all of them.

        Parameters
        ----------
        update
            Called a few times a second, with the slots.

        Raises
        ------
        PlacementError
            No slot found any room.
        DaskTrainError
            Slots are lost again and again, or the data is.
        ValueError
            The metric is not among the scores of an epoch.
        """
        try:
            while True:
                for slot in list(self._slots):
                    self._look_at(slot)
                self._hand_out()
                self._open_one()
                update(self._slots)
                if not self._study.num_left and not any(slot.handed for slot in self._slots):
                    break
                wait_for_any(self._peer, [slot.followed for slot in self._slots], LOOK_S)
        finally:
            stop_all(self._peer, [slot.followed for slot in self._slots], _FINISHED)

    def _look_at(self, slot: PoolSlot) -> None:
        # Each is asked before what came before it: the end, then how a trial ended, then its scores, which a study
        # may take long to store while the next ones arrive.
        followed, over = slot.followed, slot.followed.over
        outcomes = followed.new_values()
        for scores in followed.new_scores():
            handed = slot.handed
            is_its = handed is not None and scores.get("trial") == handed.number
            if handed is not None and is_its and self._study.scored(handed, scores):
                followed.run.send(EndTrial(number=handed.number), rank=0)
        for _, _, outcome in outcomes:
            self._finish_trial(slot, outcome)
        if over:
            self._ended(slot)

    def _finish_trial(self, slot: PoolSlot, outcome: Any) -> None:
        handed, slot.handed = slot.handed, None
        assert handed is not None
        self._losses = 0
        if isinstance(outcome, TrialDone):
            self._study.done(handed, outcome)
        elif outcome.without_metric and self._study.best is None:  # no trial will have it
            raise ValueError(f"{outcome.error} Pass one of them as metric.")
        else:
            self._study.failed(handed, outcome.error, traceback=outcome.traceback, seconds=outcome.seconds)

    def _ended(self, slot: PoolSlot) -> None:
        self._slots.remove(slot)
        error, handed = slot.error(), slot.handed
        if handed is not None:
            if isinstance(error, RoleFailedError):
                self._losses = 0
                self._study.failed(handed, error.what)
                return
            self._study.lost(handed, _in_words(error))
        if error is None or slot.is_closing:
            return
        self._not_before = time.monotonic() + AGAIN_S
        if isinstance(error, PlacementError):
            if not self._slots:
                raise error
            return
        self._losses += 1
        if isinstance(error, DataError) or self._losses >= max(MAX_LOSSES, 2 * self._room):
            raise error

    def _hand_out(self) -> None:
        for slot in self._slots:
            if slot.handed is not None or slot.is_closing:
                continue
            if not self._study.num_left:
                slot.close()
            elif slot.followed.is_placed and not slot.followed.over:
                handed = self._study.next()
                if handed is not None:
                    slot.hand(handed, self._name)

    def _open_one(self) -> None:
        now = time.monotonic()
        open_ones = [slot for slot in self._slots if not slot.is_closing]
        if now < self._not_before or any(not slot.followed.is_placed for slot in open_ones):
            return
        if now - self._looked >= LOOK_S:
            self._looked, self._room = now, max(1, self._capacity() // self._settings.workers)
        most = min(self._room, self._settings.concurrency or self._room)
        busy = sum(slot.handed is not None for slot in open_ones)
        if len(open_ones) < min(most, busy + self._study.num_left):
            run = self._start()
            if run is not None:
                self._slots.append(PoolSlot(run))


def _in_words(error: DaskTrainError | None) -> str:
    """Return why a trial was lost; advice for single runs is left out."""
    if error is None:
        return "The run of its slot was stopped."
    return f"{type(error).__name__}: " + " ".join(part for part in (error.what, error.cause) if part)


def _fields_of_trial(handed: Handed, search: str) -> dict[str, Any]:
    """Return a trial as other clients see it, in plain values."""
    params = {str(name)[:MAX_TEXT]: _plain(value) for name, value in handed.params.items()}
    request = handed.request
    assert request is not None
    return {
        "search": search,
        "number": request.number,
        "metric": request.metric,
        "mode": request.mode,
        "params": params,
    }


def _plain(value: Any) -> Any:
    if isinstance(value, bool | str) or value is None or not isinstance(value, int | float):
        return str(value)[:MAX_TEXT]
    return int(value) if isinstance(value, int) else float(value)


def trained(slots: Slots, study: S, display: SearchDisplay, result_of: Callable[[S], R]) -> R:
    """Train all trials, and show how it goes.

    Raises
    ------
    RoleFailedError
        All of them have failed.
    CheckpointError
        The search can't be kept.
    KeyboardInterrupt, DaskTrainError
        As the slots raise it, with what was found so far as ``result``.
    """

    def show(now: Sequence[PoolSlot]) -> None:
        display.update(study.ended, [slot.handed for slot in now if slot.handed], study.best_ended)

    failure: BaseException | None = None
    try:
        with display:
            slots.train(show)
        study.end()
    except BaseException as error:
        failure = error
        interrupted = isinstance(error, KeyboardInterrupt)
        study.cut_short("It was interrupted." if interrupted else f"The search ended: {error}")
        leave_result(error, result_of(study))
        raise
    finally:
        study.close()
        _end_log(study, failure, result_of)
    study.warn()
    return result_of(study)


def _end_log(study: S, failure: BaseException | None, result_of: Callable[[S], R]) -> None:
    """Let places of ``log=`` have what is left; a Ctrl-C while they are waited for carries the result."""
    if study.log is None:
        return
    try:
        study.log.end(failure, study.best)
    except BaseException as error:
        leave_result(error, result_of(study))
        raise
