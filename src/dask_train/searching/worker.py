"""What a role process of ``search`` does: one trial after the other, in one process that has imported Keras once.

Knows nothing of Optuna: the client asks for parameters, builds models and judges scores; here they are trained.
"""

from __future__ import annotations

import gc
import math
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from dask_train.checkpoint.best import is_better
from dask_train.checkpoint.folder import CheckpointFolder
from dask_train.checkpoint.place import CheckpointPlace
from dask_train.errors import ClosedError, StalledError
from dask_train.masking import shows_no_secrets
from dask_train.searching.trial_checkpoints import brought_over
from dask_train.settings.process import Settings

if TYPE_CHECKING:
    from pathlib import Path

    from dask_train.role.dataset import DataSet
    from dask_train.role.session import Session


@shows_no_secrets
@dataclass(frozen=True, kw_only=True)
class TrialPlace:
    """Where a trial keeps checkpoints, and where earlier starts of it have."""

    url: str
    earlier: list[str]


@dataclass(frozen=True, kw_only=True)
class TrialOrder:
    """A trial, as it is sent to the workers of a slot.

    Attributes
    ----------
    number
        Of the trial.
    task
        The model, and how it is fitted: a FitTask for :class:`TrialLoop`; for estimators what their loop calls.
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
    task: Any
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
    """A trial has been gone through, to its end or to where it was told to end.

    Attributes
    ----------
    value, epoch
        The best score of an epoch, and the first epoch that had it; None without any whole epoch.
    parts
        The model as it was after that epoch, taken apart, or a fitted estimator; None where that was not to be kept.
    seconds
        From its arrival to its end.
    warnings
        What Keras would have warned of.
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


@dataclass(frozen=True, kw_only=True)
class TrialLoop:
    """Called with a session, it trains what it is sent, until the run ends.

    Of several workers none goes on when one has raised, since the others wait for it in mid-step: the run fails.
    """

    __name__ = "search"

    def __call__(self, session: Session) -> None:
        """Serve trials until the run ends."""
        held: dict[str, DataSet] = {}
        noticed: set[str] = set()
        gc.freeze()  # what the framework is made of stays; to go through it after each trial takes 0.2 s
        while True:
            try:
                order = session.receive()
            except ClosedError:
                return
            if not isinstance(order, TrialOrder):
                continue  # the end of a trial that has ended by itself meanwhile
            began = time.monotonic()
            try:
                told: TrialDone | TrialFailed | None = _trained(session, order, held, noticed, began)
            except Exception as error:
                told = _failed(order, error, began)
                if session.size > 1:
                    if told.without_metric:
                        session.send(told)
                    raise
            if told is not None:
                session.send(told)  # first: the client makes the next trial meanwhile
            del told, order
            _forget(session, held)


def _failed(order: TrialOrder, error: Exception, began: float) -> TrialFailed:
    without_metric = isinstance(error, NoMetricError)
    return TrialFailed(
        number=order.number,
        error=str(error) if without_metric else f"{type(error).__name__}: {error}"[:2000],
        traceback=traceback.format_exc()[-10_000:],
        seconds=time.monotonic() - began,
        without_metric=without_metric,
    )


def _trained(
    session: Session, order: TrialOrder, held: dict[str, DataSet], noticed: set[str], began: float
) -> TrialDone | None:
    """Return what came of a trial; None in workers that are not the first."""
    import keras

    from dask_train.collectives.shared_memory import SharedMemory
    from dask_train.fitting.backends import backend_of
    from dask_train.fitting.roles.synchronous import fit_synchronously

    order.settings.apply()  # others than before where the user's function sets some for each trial
    hosts, memory = session.meeting
    own = session.size == 1
    if own:  # new for each trial, so that what the last one has written is free
        memory = SharedMemory(SharedMemory.create(), 0, 1)
    try:
        trial: Any = TrialSession(session, order, (hosts, memory), held, noticed)
        with backend_of(keras.backend.backend()).forgetting():
            outcome = fit_synchronously(order.task, trial, trial.watch)
    finally:
        if own:
            memory.close()
    if outcome is None:
        return None
    best: BestEpoch = trial.best
    return TrialDone(
        number=order.number,
        value=best.value,
        epoch=best.epoch,
        parts=best.parts,
        seconds=time.monotonic() - began,
        warnings=outcome.warnings,
    )


def _forget(session: Session, held: dict[str, DataSet]) -> None:
    """Give back what a trial has left in the process: graphs, names, models, memory for batches."""
    import keras

    keras.utils.clear_session(free_memory=False)
    for data in (session._data, *held.values()):
        if data is not None:
            data.give_memory_back()
    gc.collect()


class BestEpoch:
    """The best epoch of a trial so far, and its model where it has to be kept.

    Parameters
    ----------
    parts_of
        Takes the model apart as it is now.
    """

    def __init__(self, order: TrialOrder, parts_of: Callable[[], tuple[dict[str, Any], list[np.ndarray]]]) -> None:
        self._order, self._parts_of = order, parts_of
        self.value: float | None = None
        self.epoch: int | None = None
        self.parts: tuple[dict[str, Any], list[np.ndarray]] | None = None

    def epoch_ended(self, epoch: int, value: float) -> None:
        """Look at the score of an epoch that has just ended."""
        if not is_better(value, self.value, mode=self._order.mode):
            return
        self.value, self.epoch = value, epoch
        if is_better(value, self._order.to_beat, mode=self._order.mode):
            self.parts = self._parts_of()

    def go_on(self, scores: dict[int, float], model: tuple[dict[str, Any], list[np.ndarray]] | None) -> None:
        """Take over the scores of epochs by number, of an earlier start, and the model after the best of them."""
        for epoch, value in scores.items():
            if is_better(value, self.value, mode=self._order.mode):
                self.value, self.epoch = value, epoch
        if model is None or self.value is None:
            return
        if is_better(self.value, self._order.to_beat, mode=self._order.mode):
            self.parts = ({**self._order.task.header, **model[0]}, model[1])


class TrialSession:
    """A session as one trial sees it: what it reports carries its number, and it ends by itself.

    Parameters
    ----------
    session
        Of the role.
    meeting
        As the adapter gives it.
    held
        The data sets that the role has opened, by name; they stay open for the next trial.
    told
        What was told in other trials of this process.
    """

    def __init__(
        self,
        session: Session,
        order: TrialOrder,
        meeting: tuple[Any, Any],
        held: dict[str, DataSet],
        told: set[str] | None = None,
    ) -> None:
        self._session, self._order, self._held = session, order, held
        self._told: set[str] = set() if told is None else told
        self.meeting = meeting
        self._model: Any = None
        self._is_to_end = False
        self.best = BestEpoch(order, self._parts)
        self._folder: CheckpointFolder | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def watch(self, model: Any) -> None:
        """Watch the model that is being trained."""
        self._model = model

    def _parts(self) -> tuple[dict[str, Any], list[np.ndarray]]:
        from dask_train.keras_models.serialization import model_to_parts

        return model_to_parts(self._model)

    def dataset(self, name: str) -> DataSet:
        """Do as :meth:`Session.dataset`, opened once for all trials."""
        if name not in self._held:
            self._held[name] = self._session.dataset(name)
        return self._held[name]

    def checkpoints(self) -> CheckpointFolder:
        """Return the checkpoints of this trial."""
        if self._folder is None:
            self._folder = CheckpointFolder(self._place())
        return self._folder

    def _place(self) -> CheckpointPlace:
        order, kept = self._order, self._order.task.checkpoint
        assert order.place is not None
        return CheckpointPlace(
            url=order.place.url,
            run=order.task.run,
            began=time.time(),
            resume=True,
            keep=2 if kept is None else kept.keep,
            best=order.metric,
            mode=order.mode,
            storage_options=None if kept is None else kept.storage_options,
        )

    def open_checkpoint(self, *, own: bool = False, begins: bool = False) -> Path | None:  # noqa: ARG002
        """Return the last one of an earlier start of this trial, whose scores are reported again."""
        order = self._order
        assert order.place is not None
        earlier = order.place.earlier
        found, notices = brought_over(earlier, self._place(), self.checkpoints(), self._session.scratch)
        for text in notices:
            self.notice(f"Trial {order.number}: {text}")
        if found is None:
            if earlier:
                self.notice(f"Trial {order.number} had no checkpoint to go on with: it is trained from its beginning.")
            return None
        self.best.go_on(found.scores, found.best)
        for epoch, value in found.scores.items():
            self._session.report(trial=order.number, epoch=epoch, **{order.metric: value})
        return found.folder

    def report(self, **scores: Any) -> None:
        """Do as :meth:`Session.report`, with the number of the trial.

        Raises
        ------
        FloatingPointError
            The loss is no number any more.
        NoMetricError
            The metric that counts is not among the scores of an epoch.
        """
        self._session.report(trial=self._order.number, **scores)
        loss, epoch, metric = scores.get("loss", 0.0), scores["epoch"], self._order.metric
        if not math.isfinite(loss):
            raise FloatingPointError(f"The loss is {loss} in epoch {epoch + 1}.")
        if "step" in scores or self._is_to_end:
            return  # in the middle of an epoch, or one that was cut short
        if metric not in scores:
            known = ", ".join(name for name in scores if name not in ("epoch", "num_steps"))
            raise NoMetricError(f"There is no score {metric!r} at the end of an epoch; there are {known}.")
        if math.isnan(scores[metric]):
            raise FloatingPointError(f"{metric} is not a number after epoch {epoch + 1}.")
        self.best.epoch_ended(epoch, float(scores[metric]))

    def notice(self, text: str) -> None:
        """Do as :meth:`Session.notice`, once in the process: most trials have the same to tell."""
        if text not in self._told:
            self._told.add(text)
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
            self._is_to_end = isinstance(word, EndTrial) and word.number == self._order.number
        return self._is_to_end or self._session.should_stop()
