"""Workers that train one model through parameter servers, each at its own pace."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import keras
import numpy as np

from dask_train.data.account import Stretch
from dask_train.errors import StalledError
from dask_train.fit_roles.backends import Backend, backend_of
from dask_train.fit_roles.callbacks import Moment
from dask_train.fit_roles.control import Flags
from dask_train.fit_roles.metrics import Metrics
from dask_train.fit_roles.sent_callbacks import states_of
from dask_train.fit_roles.task import VALIDATION, FitTask, Outcome, Read
from dask_train.fit_roles.weights import WatchedWeights, scale_of, seeds_of_rank, value_of
from dask_train.fit_roles.worker import Worker
from dask_train.frameworks.keras import state
from dask_train.frameworks.keras.serialization import load_parts
from dask_train.rank_dataset import DataSet
from dask_train.session import Session

# How often the first worker, which has no rows left, looks whether the others have some.
_LOOK_S = 0.05
# How long it waits for the last steps of others in a run that is to stop, which kills all after some seconds.
_LAST_STEPS_S = 2.0
# How long a worker whose server is gone waits to be ended, too; that is told in milliseconds.
_END_S = 20.0


def fit_asynchronously(task: FitTask, session: Session) -> Outcome | None:
    """Train; the trained model in the first worker, None in the others."""
    worker = AsynchronousWorker(task, session, backend_of(keras.backend.backend()))
    try:
        with worker.gradients_kept():
            return worker.fit()
    except (EOFError, ConnectionError):
        time.sleep(_END_S)  # the loss of a server is not this worker's fault: the run ends it, and starts all again
        raise
    finally:
        worker.servers.close()


class AsynchronousWorker(Worker):
    """One of them.

    Notes
    -----
    A step computes gradients with the weights that the servers gave after the last one, and brings them together with
    what its rows have added to metrics, so what the servers count is what they have applied.
    """

    def __init__(self, task: FitTask, session: Session, backend: Backend) -> None:
        super().__init__(task, session, backend)
        seeds_of_rank(self.model, session.rank)
        self.servers = task.servers(self.model, session)
        self.metrics = Metrics(self.model)
        self._assign = backend.assigning(self.model.trainable_variables)
        self._flags = Flags()
        self.moment = _Alone(self, self._flags)
        self._rate: float | None = None
        self._counted: dict[int, list[np.ndarray]] = {}
        self._read: list[Read] = []
        self._began: dict[int, int] = {}  # how many steps each worker had taken when this run began

    def begin(self, callbacks: Any) -> None:
        """The first worker brings the weights, from a checkpoint where there is one; a new one goes on where it was."""
        ready, steps, remembered = self.servers.begin(self.session.rank)
        if not ready:
            if not self.leads:
                raise StalledError(f"Worker 0 has brought no weights within {self.task.patience_s:g} s.")
            known: dict[int, int] = {}
            kept = self.keeper.load()
            if kept is not None:
                load_parts(self.model, kept.header, kept.arrays)
                known, self._counted = kept.steps_by_rank, kept.counted
                self._read = [read for read in kept.read if read[0] != self.task.run]
                self._began = {rank: _batches_of(rank, self._read) for rank in known}
                callbacks.resume(kept.batch, kept.history, kept.epochs, kept.callbacks)
            self.servers.bring(known, self._counted)
            steps = known.get(0, 0)
        self.steps = steps
        self.epoch, self.batch = divmod(self.task.initial_epoch * self.num_batches + steps, self.num_batches)
        if self.leads and remembered is not None:  # this one takes the place of one that was lost
            history, epochs, held = remembered
            callbacks.resume(self.batch, history, epochs, held)

    def epoch_over(self) -> None:
        """Let a server remember what would be lost with this worker."""
        history = self.model.history
        self.servers.remember((history.history, history.epoch, states_of(self.callbacks)))

    @contextmanager
    def gradients_kept(self) -> Iterator[None]:
        """While it lasts, an optimizer's ``apply`` keeps gradients for the servers, and changes nothing here."""
        optimizer, places = self.model.optimizer, {id(v): at for at, v in enumerate(self.model.trainable_variables)}

        def apply(grads: Any, trainable_variables: Any = None) -> None:
            variables = self.model.trainable_variables if trainable_variables is None else list(trainable_variables)
            pairs = [(places[id(v)], grad) for v, grad in zip(variables, grads, strict=True) if grad is not None]
            dense = [self.backend.dense(gradient) for _, gradient in pairs]
            self.backend.tell_host(partial(self.servers.keep, [at for at, _ in pairs]), dense)

        object.__setattr__(optimizer, "apply", apply)
        try:
            yield
        finally:
            object.__delattr__(optimizer, "apply")

    def stepped(self, logs: Any) -> Any:
        """Bring what the step has given, and take the new weights."""
        epoch = self.epoch
        last = self._flags.epoch_ends = self.count_step()
        weights, told = self.servers.step(
            rank=self.session.rank,
            steps=self.steps,
            rate=self._new_rate(),
            scale=scale_of(self.model.optimizer),
            counted=(epoch, self.metrics.counted()) if self.servers.has_gradients else None,
            statistics=last,
        )
        self._assign(weights)
        if told["scale"] is not None:
            self.model.optimizer.dynamic_scale.assign(told["scale"])
        self.metrics.set(None)
        if not self.leads or not (last or self._flags.gather) or told["counted"] is None:
            return logs
        self.metrics.set(told["counted"])
        results = self.metrics.results()
        if not last:
            self.metrics.set(None)
        return {name: results.get(name, value) for name, value in logs.items()} if isinstance(logs, dict) else results

    def _new_rate(self) -> float | None:
        """The learning rate, where a callback has set another one; schedules are the servers'."""
        variable = getattr(state.innermost(self.model.optimizer), "_learning_rate", None)
        if not self.leads or not isinstance(variable, keras.Variable):
            return None
        rate = float(value_of(variable))
        changed = self._rate is not None and rate != self._rate
        self._rate = rate
        return rate if changed else None

    def validated(self, logs: Any, *, last: bool) -> Any:  # noqa: ARG002 - it counts for itself
        """See :meth:`Worker.validated`."""
        return logs

    def validation(self) -> Any:
        """The first worker's, on all of the data; None where a scorer does it, and in the others."""
        return super().validation() if self.leads and not self.task.scored_elsewhere else None

    def validation_data(self) -> DataSet:
        """All of it."""
        return self.session.dataset(VALIDATION).whole()

    def keep_all(self) -> None:
        """Take a checkpoint of what the servers hold at this moment."""
        told = self.servers.everything()
        self.keep(
            self.model.history,
            steps_by_rank=told["steps"],
            counted=told["counted"],
            read=[*self._read, (self.task.run, self.session.size, self._taken_by_all(told["steps"]))],
        )

    def _taken_by_all(self, steps: dict[int, int]) -> dict[int, list[Stretch]]:
        before = self.task.initial_epoch * self.num_batches
        return {rank: self.taken(before + self._began.get(rank, 0), before + steps[rank]) for rank in steps}

    def outcome(self, callbacks: Any) -> Outcome | None:
        """Wait for the other workers, then take everything from the servers."""
        self.servers.end(self.session.rank)
        if not self.leads:
            return None
        if self.model.stop_training and not self.session.should_stop():
            self.session.stop(f"a callback stopped training in epoch {callbacks.epoch + 1}")
        stops_at = math.inf
        while self.servers.pull()["ended"] < self.session.size and time.monotonic() < stops_at:
            if self.session.should_stop():
                stops_at = min(stops_at, time.monotonic() + _LAST_STEPS_S)
            time.sleep(_LOOK_S)
        told = self.servers.everything()
        history = callbacks._history
        return self.trained(
            self._of_all_workers(history, told["counted"]),
            history.epoch,
            steps=sum(told["steps"].values()),
            read=self._read,
            agreeing_s=0.0,
            waiting_s=0.0,
            applied=self._taken_by_all(told["steps"]),
        )

    def _of_all_workers(self, history: Any, counted: dict[int, list[np.ndarray]]) -> dict[str, list[Any]]:
        """The history with the metrics of all rows of each epoch, as the servers have counted them."""
        found = {name: list(values) for name, values in history.history.items()}
        for place, epoch in enumerate(history.epoch):
            if epoch in counted:
                self.metrics.set(counted[epoch])
                for name, value in self.metrics.results().items():
                    if name in found and place < len(found[name]):
                        found[name][place] = float(keras.ops.convert_to_numpy(value))
        return found


def _batches_of(rank: int, read: list[Read]) -> int:
    """How many batches a worker went through in other runs."""
    return sum(stretch.done for _, _, by_rank in read for stretch in by_rank.get(rank, ()))


class _Alone(Moment):
    """A moment of one worker, which agrees with nobody: what its callbacks set goes to the servers."""

    def __init__(self, worker: AsynchronousWorker, flags: Flags) -> None:
        self.model, self.control, self.weights = worker.model, flags, WatchedWeights(worker.model)
        self._worker = worker

    def pass_on(self, *, new_weights: bool = False) -> None:
        """See :meth:`Moment.pass_on`."""
        if self._worker.session.should_stop():
            self.control.halt = True
            self.model.stop_training = True
        self.stop_here()
        if new_weights:
            self._worker.servers.set_weights()
        if self.control.keep:
            self.control.keep = False
            self._worker.keep_all()
