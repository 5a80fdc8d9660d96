"""Workers that train one model together: gradients are summed before they are applied, in every step."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, closing
from typing import Any

import keras
import numpy as np

from dask_train.agreement import Replicas
from dask_train.agreement.ring import Ring
from dask_train.data.account import Stretch
from dask_train.fit_roles.backends import Backend, backend_of
from dask_train.fit_roles.callbacks import Moment
from dask_train.fit_roles.control import Control
from dask_train.fit_roles.gradients import summed_gradients
from dask_train.fit_roles.metrics import MetricSums
from dask_train.fit_roles.reductions import losses_of_all
from dask_train.fit_roles.task import FitTask, Outcome, Read
from dask_train.fit_roles.weights import Weights, seeds_of_rank
from dask_train.fit_roles.worker import Worker
from dask_train.frameworks.keras import state
from dask_train.frameworks.keras.serialization import load_parts
from dask_train.session import Session


def fit_synchronously(task: FitTask, session: Session, shown: Callable[[Any], None] | None = None) -> Outcome | None:
    """Train; the trained model in the first worker, None in the others. The model is ``shown`` before it is trained."""
    with ExitStack() as stack:
        backend = backend_of(keras.backend.backend())
        hosts, memory = session.meeting
        across = None
        if len(hosts.groups) > 1 and session.rank in hosts.leaders:
            addresses, place = [hosts.addresses[rank] for rank in hosts.leaders], hosts.leaders.index(session.rank)
            across = stack.enter_context(closing(Ring(addresses, place, task.credentials(session), task.patience_s)))
        replicas = Replicas(hosts, session.rank, memory, across, task.patience_s)
        replicas.begin_again()  # in a search the same workers have trained another model before
        worker = SynchronousWorker(task, session, backend, replicas)
        if shown is not None:
            shown(worker.model)
        if replicas.size > 1:
            optimizers = [optimizer for optimizer, _ in state.held_optimizers(worker.model)]
            stack.enter_context(summed_gradients(optimizers, replicas, backend, worker.share))
            stack.enter_context(losses_of_all(worker.model, replicas, backend, worker.share))
        return worker.fit()


class SynchronousWorker(Worker):
    """One of them."""

    metrics: MetricSums
    weights: Weights

    def __init__(self, task: FitTask, session: Session, backend: Backend, replicas: Replicas) -> None:
        super().__init__(task, session, backend)
        model, self._replicas = self.model, replicas
        seeds_of_rank(model, replicas.rank)
        self.weights = Weights(model, replicas)
        self._control = Control(model, replicas)
        self.metrics = MetricSums(model, replicas, self.share)
        self.moment = Moment(model, self._control, self.weights, self._keep)
        self._began = 0  # the batch with which this process began, counted from the first of all epochs
        self._read: list[Read] = []

    def begin(self, callbacks: Any) -> None:
        """Go on with the last checkpoint, if there is one to go on with; all workers with the first one's weights."""
        kept = self.keeper.load() if self.leads else None
        place = np.zeros(5)
        if kept is not None:
            load_parts(self.model, kept.header, kept.arrays)
            place[:] = [1, kept.epoch, kept.batch, kept.steps, len(kept.own) == self._replicas.size]
            callbacks.resume(kept.batch, kept.history, kept.epochs, kept.callbacks)
            self.metrics.carry(kept.metrics)
            self._read = kept.read
        (agreed,) = self._replicas.from_first(self._replicas.channel([place.shape], place.dtype), [place])
        found, epoch, batch, steps, same_size = map(int, agreed)
        if found:
            self.epoch, self.batch, self.steps = epoch, batch, steps
        self._began = self.epoch * self.num_batches + self.batch
        self.weights.send(optimizers=True)
        if same_size:
            self.weights.set_own(kept.own if kept is not None else None)

    def stepped(self, logs: Any) -> Any:
        """See :meth:`Worker.stepped`."""
        last = self._control.epoch_ends = self.count_step()
        if last:
            self.weights.average_statistics()
        return self.metrics.gather(logs) if last or self._control.gather else logs

    def validated(self, logs: Any, *, last: bool) -> Any:
        """See :meth:`Worker.validated`."""
        return self.metrics.gather(logs) if last or self._control.test_batches else logs

    def _keep(self) -> None:
        """Take a checkpoint: all workers tell what is their own, the first one writes."""
        if self.batch:
            self.metrics.gather({})
        own = self.weights.own()
        if not self.leads:
            return
        self.keep(
            self.model.history,
            own=own,
            metrics=self.metrics.counted() if self.batch else [],
            read=[*self._read, (self.task.run, self._replicas.size, self._taken_by_all())],
        )

    def _taken_by_all(self) -> dict[int, list[Stretch]]:
        """What each worker has trained on since this process began: the same batches."""
        taken = self.taken(self._began, self.epoch * self.num_batches + self.batch)
        return dict.fromkeys(range(self._replicas.size), taken)

    def outcome(self, callbacks: Any) -> Outcome | None:
        """See :meth:`Worker.outcome`."""
        if not self.leads:
            return None
        history = callbacks._history
        applied = self._taken_by_all()
        for run, _, before in self._read:
            if run == self.task.run:  # an earlier attempt, whose workers may have taken their accounts with them
                applied = {rank: [*before[rank], *taken] for rank, taken in applied.items()}
        return self.trained(
            history.history,
            history.epoch,
            steps=self.steps,
            read=[read for read in self._read if read[0] != self.task.run],
            agreeing_s=self._replicas.agreeing_s,
            waiting_s=self._replicas.waiting_s,
            applied=applied,
        )
