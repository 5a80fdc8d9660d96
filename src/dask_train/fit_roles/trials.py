"""What a role process of ``search`` does: one trial after the other, in one process that has imported Keras once.

Knows nothing of Optuna: the client asks for parameters, builds models and judges scores; here they are trained.
"""

from __future__ import annotations

import gc
import math
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dask_train.errors import ClosedError, StalledError

if TYPE_CHECKING:
    from dask_train.fit_roles.task import FitTask
    from dask_train.rank_dataset import DataSet
    from dask_train.session import Session


@dataclass(frozen=True, kw_only=True)
class Order:
    """A trial, as it is sent to the workers of a slot.

    Attributes
    ----------
    number
        Of the trial.
    task
        The model, and how it is fitted.
    metric, maximize
        The score of an epoch that counts, and whether more of it is better.
    to_beat
        Weights are kept of epochs that are better than this only; None for any.
    """

    number: int
    task: FitTask
    metric: str
    maximize: bool
    to_beat: float | None


@dataclass(frozen=True, kw_only=True)
class EndTrial:
    """The trial of this number is to end after the step in hand."""

    number: int


@dataclass(frozen=True, kw_only=True)
class Done:
    """A trial has been gone through, to its end or to where it was told to end.

    Attributes
    ----------
    value, epoch
        The best score of an epoch, and the first epoch that had it; None without any whole epoch.
    parts
        The model as it was after that epoch, taken apart; None where that was not to be kept.
    seconds
        From its arrival to its end.
    """

    number: int
    value: float | None
    epoch: int | None
    parts: tuple[dict[str, Any], list[np.ndarray]] | None
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Failed:
    """A trial has raised; ``error`` is one line, ``traceback`` all of it."""

    number: int
    error: str
    traceback: str
    seconds: float


@dataclass(frozen=True, kw_only=True)
class TrialLoop:
    """Called with a session, it trains what it is sent, until the run ends.

    Of several workers none goes on when one has raised, since the others wait for it in mid-step: the run fails.
    """

    __name__ = "search"

    def __call__(self, session: Session) -> None:
        """Serve."""
        held: dict[str, DataSet] = {}
        gc.freeze()  # what the framework is made of stays; to go through it after each trial takes 0.2 s
        while True:
            try:
                order = session.receive()
            except ClosedError:
                return
            if not isinstance(order, Order):
                continue  # the end of a trial that has ended by itself meanwhile
            began = time.monotonic()
            try:
                told: Done | Failed | None = _trained(session, order, held, began)
            except Exception as error:
                if session.size > 1:
                    raise
                told = Failed(
                    number=order.number,
                    error=f"{type(error).__name__}: {error}"[:2000],
                    traceback=traceback.format_exc()[-10_000:],
                    seconds=time.monotonic() - began,
                )
            if told is not None:
                session.send(told)  # first: the client makes the next trial meanwhile
            del told, order
            _forget(session, held)


def _trained(session: Session, order: Order, held: dict[str, DataSet], began: float) -> Done | None:
    """What came of a trial; None in workers that are not the first."""
    import keras

    from dask_train.agreement.memory import SharedMemory
    from dask_train.fit_roles.backends import backend_of
    from dask_train.fit_roles.synchronous import fit_synchronously

    hosts, memory = session.meeting
    own = session.size == 1
    if own:  # new for each trial, so that what the last one has written is free
        memory = SharedMemory(SharedMemory.create(), 0, 1)
    try:
        trial: Any = TrialSession(session, order, (hosts, memory), held)
        with backend_of(keras.backend.backend()).forgetting():
            outcome = fit_synchronously(order.task, trial, trial.watch)
    finally:
        if own:
            memory.close()
    if outcome is None:
        return None
    best: Best = trial.best
    return Done(
        number=order.number,
        value=best.value,
        epoch=best.epoch,
        parts=best.parts,
        seconds=time.monotonic() - began,
    )


def _forget(session: Session, held: dict[str, DataSet]) -> None:
    """Give back what a trial has left in the process: graphs, names, models, memory for batches."""
    import keras

    keras.utils.clear_session(free_memory=False)
    for data in (session._data, *held.values()):
        if data is not None:
            data.give_memory_back()
    gc.collect()


class Best:
    """The best epoch of a trial so far, and its model where it has to be kept.

    Parameters
    ----------
    parts_of
        Takes the model apart as it is now.
    """

    def __init__(self, order: Order, parts_of: Callable[[], tuple[dict[str, Any], list[np.ndarray]]]) -> None:
        self._order, self._parts_of = order, parts_of
        self.value: float | None = None
        self.epoch: int | None = None
        self.parts: tuple[dict[str, Any], list[np.ndarray]] | None = None

    def epoch_ended(self, epoch: int, value: float) -> None:
        """Look at the score of an epoch that has just ended."""
        if not is_better(value, self.value, maximize=self._order.maximize):
            return
        self.value, self.epoch = value, epoch
        if is_better(value, self._order.to_beat, maximize=self._order.maximize):
            self.parts = self._parts_of()


def is_better(value: float, than: float | None, *, maximize: bool) -> bool:
    """Whether one score is better than another, or the first."""
    return than is None or (value > than if maximize else value < than)


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
    """

    def __init__(self, session: Session, order: Order, meeting: tuple[Any, Any], held: dict[str, DataSet]) -> None:
        self._session, self._order, self._held = session, order, held
        self.meeting = meeting
        self._model: Any = None
        self._is_to_end = False
        self.best = Best(order, self._parts)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def watch(self, model: Any) -> None:
        """The model that is being trained."""
        self._model = model

    def _parts(self) -> tuple[dict[str, Any], list[np.ndarray]]:
        from dask_train.frameworks.keras.serialization import model_to_parts

        return model_to_parts(self._model)

    def dataset(self, name: str) -> DataSet:
        """As :meth:`Session.dataset`, opened once for all trials."""
        if name not in self._held:
            self._held[name] = self._session.dataset(name)
        return self._held[name]

    def report(self, **scores: Any) -> None:
        """As :meth:`Session.report`, with the number of the trial.

        Raises
        ------
        FloatingPointError
            The loss is no number any more.
        ValueError
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
            raise ValueError(f"There is no score {metric!r} at the end of an epoch; there are {known}.")
        if math.isnan(scores[metric]):
            raise FloatingPointError(f"{metric} is not a number after epoch {epoch + 1}.")
        self.best.epoch_ended(epoch, float(scores[metric]))

    def should_stop(self) -> bool:
        """Whether the trial is to end, because the client says so or the run ends."""
        while not self._is_to_end:
            try:
                word = self._session.receive(timeout_s=0)
            except StalledError:
                break
            except ClosedError:
                return True
            self._is_to_end = isinstance(word, EndTrial) and word.number == self._order.number
        return self._is_to_end or self._session.should_stop()
