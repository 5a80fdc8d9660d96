"""Weights of the ends of epochs on their way to a scorer: the end in the first worker, and the scorer's.

The latest win: what the scorer has not begun with when newer ones come is not validated, and no worker ever waits for
it in mid-training.
"""

from __future__ import annotations

import hmac
import math
import threading
import time
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, Protocol

from dask_train.errors import LaunchError
from dask_train.fitting.roles.answering import Answering
from dask_train.fitting.spec import FitTask
from dask_train.keras_models.serialization import model_to_parts, restore_parts
from dask_train.role.session import Session
from dask_train.trainers.common.fit_checkpoint import MAKING
from dask_train.transport.channels import Channel, ask
from dask_train.transport.connections import Credentials, connected, greeted, listening
from dask_train.transport.reception import Reception

Scores = dict[int, dict[str, float]]

# How often a role that waits checks whether the run is to stop.
_LOOK_S = 0.25
# How long one attempt to reach the first worker may take, which listens when its model is put together.
_DIAL_S = 1.0


class Awaiting(Protocol):
    """What looks at scores that decide the best of several weights; called from any thread."""

    def expect_scores(self, epochs: Collection[int]) -> None:
        """Expect scores of no other epochs than these."""

    def take_scores(self, epoch: int, scores: dict[str, float]) -> None:
        """Take the awaited scores of an epoch."""


class Spool(Answering):
    """The first worker's end.

    Parameters
    ----------
    address
        Where to listen.
    credentials
        What the scorer has to have.
    awaiting
        Hears which scores may come, and what comes.

    Attributes
    ----------
    scores
        What was found, by epoch and name.
    """

    def __init__(self, address: str, credentials: Credentials, awaiting: Awaiting) -> None:
        super().__init__()
        self.scores: Scores = {}
        self._awaiting = awaiting
        self._begun: int | None = None  # the epoch that the scorer was given last
        self._open: set[int] = set()  # epochs whose scores may come
        self._latest: tuple[int, dict[str, Any], list[Any]] | None = None  # that has not been validated
        self._num_moves = 0
        self._changed = threading.Condition()
        greet = partial(_greeted, credentials=credentials)
        self.answer([Reception(listening(address), greet)])

    def put(self, epoch: int, model: Any) -> None:
        """Let the scorer validate the weights of this moment, next; a snapshot, as for a checkpoint."""
        header, arrays = model_to_parts(model, optimizers=False, checksums=False)
        state_header = {name: value for name, value in header.items() if name not in MAKING}
        with self._changed:
            self._latest = (epoch, state_header, arrays)
            self._await({epoch} | (self._open & {self._begun}))
            self._changed.notify_all()

    def wait_for_last(self, timeout_s: float, *, moved: Callable[[], None], should_stop: Callable[[], bool]) -> bool:
        """Wait until what was put last is validated; whether it is.

        Parameters
        ----------
        timeout_s
            How long the scorer may take no step.
        moved
            Called when it has taken some.
        should_stop
            Whether that is no longer needed.
        """
        num_moves, deadline = self._num_moves, time.monotonic() + timeout_s
        with self._changed:
            while self._latest is not None:
                if should_stop() or time.monotonic() > deadline:
                    return False
                self._changed.wait(_LOOK_S)
                if self._num_moves != num_moves:
                    num_moves, deadline = self._num_moves, time.monotonic() + timeout_s
                    moved()
        return True

    def aligned(self, epochs: Sequence[int]) -> dict[str, list[float]]:
        """Return what was found, a list for each name of one value per epoch; NaN for those that were not validated."""
        names = dict.fromkeys(name for scores in self.scores.values() for name in scores)
        return {name: [self.scores.get(epoch, {}).get(name, math.nan) for epoch in epochs] for name in names}

    def _on_next(self, _: Channel, *, seen: int, wait_s: float) -> tuple[int, dict[str, Any], list[Any]] | None:
        """Return what is to be validated now, except for what the scorer has seen."""
        with self._changed:
            self._changed.wait_for(lambda: self._latest is not None and self._latest[0] != seen, wait_s)
            if self._latest is None or self._latest[0] == seen:
                return None
            self._begun = self._latest[0]
            self._await({self._begun})  # a scorer that had others in hand is gone
            return self._latest

    def _on_moved(self, _: Channel) -> None:
        """Note that the scorer makes progress."""
        with self._changed:
            self._num_moves += 1

    def _on_scored(self, _: Channel, *, epoch: int, scores: dict[str, float]) -> None:
        """Take what the scorer has found."""
        with self._changed:
            self._num_moves += 1
            if epoch not in self._open:  # another scorer has been given later ones meanwhile
                return
            self.scores[epoch] = scores
            self._awaiting.take_scores(epoch, scores)
            self._await(self._open - {epoch})
            if self._latest is not None and self._latest[0] == epoch:
                self._latest = None
            self._changed.notify_all()

    def _await(self, epochs: set[int]) -> None:
        if epochs != self._open:
            self._open = epochs
            self._awaiting.expect_scores(epochs)


class SpooledWeights:
    """The scorer's end; lets a model take over the weights of the ends of epochs."""

    def __init__(self, task: FitTask, model: Any, session: Session) -> None:
        self._task, self._model, self._session = task, model, session
        self._credentials = spool_credentials(task, session)
        self._line: Channel | None = None
        self._epoch = -1

    def next(self, wait_s: float) -> dict[str, int] | None:
        """Return which epoch's weights the model has now; None if there are no new ones.

        Raises
        ------
        LaunchError
            The first worker is not reached.
        """
        answer = self._ask("next", seen=self._epoch, wait_s=wait_s)
        if answer is None:
            return None
        self._epoch, header, arrays = answer
        restore_parts(self._model, header, arrays)
        return {"epoch": self._epoch}

    def moved(self) -> None:
        """Report that a step was taken."""
        self._ask("moved")

    def scored(self, scores: dict[str, float]) -> None:
        """Report the scores."""
        self._ask("scored", epoch=self._epoch, scores=scores)

    def close(self) -> None:
        """Hang up."""
        if self._line is not None:
            self._line.close()

    def _ask(self, order: str, **arguments: Any) -> Any:
        """Return what the first worker answers; None if the run is to stop."""
        while self._line is not None or self._dial():
            assert self._line is not None
            try:
                (answer,) = ask([self._line], [(order, arguments)], self._task.collective_timeout_s, "Worker 0")
                return answer
            except (EOFError, OSError):  # it has ended, which the run will tell; or only the connection has
                self.close()
                self._line = None
        return None

    def _dial(self) -> bool:
        address, deadline = self._session.peers["worker"][0], time.monotonic() + self._task.collective_timeout_s
        while not self._session.should_stop():
            try:
                self._line = Channel(connected(address, self._credentials, _DIAL_S), [], [])
                return True
            except LaunchError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_LOOK_S)
        return False


def spool_credentials(task: FitTask, session: Session) -> Credentials:
    """Others than those of a ring, which is made at the same address before."""
    return Credentials(key=hmac.digest(task.secret, b"spool", "sha256"), tls=session.tls)


def _greeted(connection: Any, credentials: Credentials) -> Channel:
    return Channel(greeted(connection, credentials, listens=True), [], [])
