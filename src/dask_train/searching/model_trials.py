"""A trial of a model in a process of ``search``: its training loop, in a session of this trial alone."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from dask_train.checkpoint.folder import CheckpointFolder
from dask_train.checkpoint.place import CheckpointPlace
from dask_train.collectives.shared_memory import SharedMemory
from dask_train.errors import ClosedError, StalledError
from dask_train.searching.best_epoch import BestEpoch
from dask_train.searching.trial_checkpoints import brought_over
from dask_train.searching.worker import EndTrial, NoMetricError, TrialDone, TrialRequest, TrialServer

if TYPE_CHECKING:
    from pathlib import Path

    from dask_train.role.dataset import DataSet
    from dask_train.role.session import Session
    from dask_train.trainers.common.sync_point import SyncedLoop

# What adapters of ``fit`` give: the hosts of the workers, and the memory in which those of a host agree.
_MEETING = "meeting"


class TrialLoop(TrialServer):
    """Called with a session, it trains one model after the other."""

    def make_worker(self, session: Session) -> ModelTrials:
        """Return what trains them."""
        gc.freeze()  # what the framework is made of stays; to go through it after each trial takes 0.2 s
        return ModelTrials(session)


class ModelTrials:
    """Trains models; the data sets that the first one has opened stay open."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._datasets: dict[str, DataSet] = {}
        self._noticed: set[str] = set()
        self._forget: Callable[[], object] = gc.collect

    def work(self, request: TrialRequest) -> TrialDone | None:
        """Train a model; None in workers that are not the first."""
        began, self._forget = time.monotonic(), request.work.forget
        with _own_memory(self._session) as extras:
            trial: Any = TrialSession(self._session, request, extras, self._datasets, self._noticed)
            outcome = request.work(trial, trial.watch)
        if outcome is None:
            return None
        best: BestEpoch = trial.best
        if best.value is None and trial.not_as_scored:
            raise ValueError(trial.not_as_scored)
        if request.work.ends_with_all and best.epoch is not None:
            best.parts = request.work.as_of(outcome, best.epoch) if best.beats_others else None
        return best.done(time.monotonic() - began, outcome.warnings)

    def forget(self) -> None:
        """Give back what a trial has left in the process: graphs, names, models, memory for batches."""
        for data in (self._session._data, *self._datasets.values()):
            if data is not None:
                data.give_memory_back()
        self._forget()


@contextmanager
def _own_memory(session: Session) -> Iterator[dict[str, Any]]:
    """Give a lone worker new memory to sum in for each trial, so that what the last one has written is free."""
    if session.size > 1 or not hasattr(session, _MEETING):
        yield {}
        return
    memory = SharedMemory(SharedMemory.create(), 0, 1)
    try:
        yield {_MEETING: (session.meeting[0], memory)}
    finally:
        memory.close()


class TrialSession:
    """A session as one trial sees it: what it reports carries its number, and it ends by itself.

    Parameters
    ----------
    session
        Of the role.
    request
        What is trained.
    extras
        What the adapter gives, where a trial has others than the session.
    datasets
        The data sets that the role has opened, by name; they stay open for the next trial.
    notices
        What was reported in other trials of this process.

    Attributes
    ----------
    best
        The best epoch so far.
    not_as_scored
        Why epochs do not count after which callbacks have set other weights than were scored; empty without any.
    """

    def __init__(
        self,
        session: Session,
        request: TrialRequest,
        extras: Mapping[str, Any],
        datasets: dict[str, DataSet],
        notices: set[str] | None = None,
    ) -> None:
        self._session, self._request, self._datasets = session, request, datasets
        self._notices: set[str] = set() if notices is None else notices
        vars(self).update(extras)
        self._loop: SyncedLoop | None = None
        self._is_to_end = False
        self.best, self.not_as_scored = BestEpoch(request), ""
        self._folder: CheckpointFolder | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def watch(self, loop: SyncedLoop) -> None:
        """Watch the loop that trains the model."""
        self._loop, loop.watched_score = loop, self._request.metric

    def _parts(self) -> dict[str, Any] | None:
        assert self._loop is not None
        return None if self._request.work.ends_with_all else self._loop.take_model()

    def dataset(self, name: str) -> DataSet:
        """Do as :meth:`Session.dataset`, opened once for all trials."""
        if name not in self._datasets:
            self._datasets[name] = self._session.dataset(name)
        return self._datasets[name]

    def checkpoints(self) -> CheckpointFolder:
        """Return the checkpoints of this trial."""
        if self._folder is None:
            self._folder = CheckpointFolder(self._place())
        return self._folder

    def _place(self) -> CheckpointPlace:
        request, task = self._request, self._request.work.task
        policy = task.checkpoint
        assert request.place is not None
        return CheckpointPlace(
            url=request.place.url,
            run=task.run,
            began=time.time(),
            resume=True,
            keep=2 if policy is None else policy.keep,
            best=request.metric,
            mode=request.mode,
            storage_options=None if policy is None else policy.storage_options,
        )

    def open_checkpoint(self, *, own: bool = False, begins: bool = False, apart: bool = False) -> Path | None:  # noqa: ARG002
        """Return the last one of an earlier start of this trial, whose scores are reported again."""
        request = self._request
        assert request.place is not None
        earlier = request.place.earlier
        checkpoint, notices = brought_over(earlier, self._place(), self.checkpoints(), self._session.scratch)
        for text in notices:
            self.notice(f"Trial {request.number}: {text}")
        if checkpoint is None:
            if earlier:
                self.notice(
                    f"Trial {request.number} had no checkpoint to resume from: it is trained from its beginning."
                )
            return None
        counts = {
            epoch: value
            for epoch, value in checkpoint.scores.items()
            if request.work.ends_with_all or epoch == checkpoint.best_epoch
        }
        self.best.go_on(counts, checkpoint.best)
        for epoch, value in checkpoint.scores.items():
            self._session.report(trial=request.number, epoch=epoch, **{request.metric: value})
        return checkpoint.folder

    def report(self, **scores: Any) -> None:
        """Do as :meth:`Session.report`, with the number of the trial.

        Raises
        ------
        FloatingPointError
            The loss is no number any more.
        NoMetricError
            The metric that counts is not among the scores of an epoch.
        """
        if "epoch" not in scores:  # but rounds, which count from 1; a fit in steps is one epoch
            scores["epoch"] = scores.pop("round", 1) - 1
        self._session.report(trial=self._request.number, **scores)
        loss, epoch, metric = scores.get("loss", 0.0), scores["epoch"], self._request.metric
        if not math.isfinite(loss):
            raise FloatingPointError(f"The loss is {loss} in epoch {epoch + 1}.")
        if "step" in scores or self._is_to_end:
            return  # in the middle of an epoch, or one that was cut short
        if metric not in scores:
            known = ", ".join(name for name in scores if name not in ("epoch", "num_steps"))
            raise NoMetricError(f"There is no score {metric!r} at the end of an epoch; there are {known}.")
        if math.isnan(scores[metric]):
            raise FloatingPointError(f"{metric} is not a number after epoch {epoch + 1}.")
        value = float(scores[metric])
        if self.best.would_be(value) and self._is_as_scored():
            self.best.epoch_ended(epoch, value, self._parts)

    def _is_as_scored(self) -> bool:
        if self._loop is None or self._loop.is_as_scored():
            return True
        metric = self._request.metric
        self.not_as_scored = (
            f"At the end of an epoch callbacks left other weights in the model than {metric!r} is of: no model has "
            "that score, so such an epoch does not count. Set weights when an epoch begins; SwapEMAWeights has "
            "swap_on_epoch=True."
        )
        self.notice(self.not_as_scored)
        return False

    def notice(self, text: str) -> None:
        """Do as :meth:`Session.notice`, once in the process: most trials have the same to tell."""
        if text not in self._notices:
            self._notices.add(text)
            self._session.notice(text)

    def should_stop(self) -> bool:
        """Return whether the trial is to end, because the client says so or the run ends."""
        while not self._is_to_end:
            try:
                word = self._session.receive(timeout_s=0)
            except StalledError:
                break
            except ClosedError:
                return True
            self._is_to_end = isinstance(word, EndTrial) and word.number == self._request.number
        return self._is_to_end or self._session.should_stop()
