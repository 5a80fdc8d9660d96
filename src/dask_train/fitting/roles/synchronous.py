"""Workers that train one model together: gradients are summed before they are applied, in every step."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import Any

import keras
import numpy as np
from keras.callbacks import History

from dask_train.collectives import ProcessGroup
from dask_train.data.account import BatchRange
from dask_train.fitting.backends import Backend, backend_of
from dask_train.fitting.roles.callbacks import CallbackSync
from dask_train.fitting.roles.compiled import compiled_of_all
from dask_train.fitting.roles.control import Control
from dask_train.fitting.roles.global_batch import global_batch_of_all
from dask_train.fitting.roles.gradients import summed_gradients
from dask_train.fitting.roles.in_place import left_as_keras_would
from dask_train.fitting.roles.metrics import MetricSums, Told
from dask_train.fitting.roles.moments import moments_of_all
from dask_train.fitting.roles.reductions import losses_of_all
from dask_train.fitting.roles.spool import Spool, spool_credentials
from dask_train.fitting.roles.validated_beside import ValidationBeside
from dask_train.fitting.roles.weights import Weights, assign, seeds_of_rank, value_of
from dask_train.fitting.roles.worker import Worker
from dask_train.fitting.spec import FitTask
from dask_train.keras_models.torch_state import torch_buffers
from dask_train.role.session import Session
from dask_train.trainers.common.fit_checkpoint import FitCheckpoint
from dask_train.trainers.common.group import process_group
from dask_train.trainers.common.guard import Guard, checksum
from dask_train.trainers.common.outcome import Outcome, Read


def fit_synchronously(task: FitTask, session: Session, shown: Callable[[Any], None] | None = None) -> Outcome | None:
    """Train; the trained model in the first worker, None in the others. The model is ``shown`` before it is trained."""
    with ExitStack() as stack:
        backend = backend_of(keras.backend.backend())
        replicas = stack.enter_context(process_group(task, session))
        worker = SynchronousWorker(task, session, backend, replicas)
        if task.scored_elsewhere and session.rank == 0:
            spool = Spool(session.peers["worker"][0], spool_credentials(task, session), worker.keeper)
            worker.beside = stack.enter_context(closing(ValidationBeside(worker, spool)))
        if task.in_place is not None:
            stack.enter_context(left_as_keras_would(worker))
        if shown is not None:
            shown(worker.model)
        if replicas.size > 1:
            stack.enter_context(summed_gradients(replicas, backend, worker.share))
            stack.enter_context(losses_of_all(replicas, backend, worker.share))
            stack.enter_context(compiled_of_all(replicas, backend, worker.share))
            stack.enter_context(moments_of_all(replicas, backend, worker.share))
            stack.enter_context(global_batch_of_all(replicas, backend, worker.share))
        return worker.fit()


class SynchronousWorker(Worker):
    """A worker that agrees with the others in every step."""

    metrics: MetricSums
    weights: Weights
    beside: ValidationBeside | None = None  # in the first one, where a scorer validates

    def __init__(self, task: FitTask, session: Session, backend: Backend, replicas: ProcessGroup) -> None:
        super().__init__(task, session, backend)
        model, self._replicas = self.model, replicas
        seeds_of_rank(model, replicas.rank)
        self.weights = Weights(model, replicas)
        self._guard = Guard(self.weights.same, replicas, value_of, assign)
        self._control = Control(model, replicas)
        self.metrics = MetricSums(model, replicas, self.share)
        self.moment = _Together(self, model, self._control, self.weights, self._cut_short, self._keep)
        self._began = 0  # the position of the batch with which this process began
        self._read: list[Read] = []
        self._validated: list[int] | None = None  # the weights that have a score, where one is looked at
        self._has_told = False  # of weights that may be no averages
        self._ungathered: Told | None = None  # the logs of the last step, where they are of this worker alone

    def begin(self, callbacks: Any) -> None:
        """Go on with the last checkpoint, if there is one to go on with; all workers with the first one's weights."""
        kept = self.keeper.load() if self.leads else None
        place = np.zeros(5)
        again = None
        if kept is not None:
            if self.beside is not None:
                known = {name: list(values) for name, values in kept.history.items()}
                again = replace(kept, history=known, epochs=list(kept.epochs))
                self.beside.take_known(kept.history, kept.epochs)
            self.go_on(kept, callbacks)
            num_own = len(kept.own[0]) if len(kept.own) == self._replicas.size else 0
            place[:] = [1, kept.epoch, kept.batch, kept.steps, num_own]
            self.metrics.carry(kept.metrics)
            self._read = kept.read
        (agreed,) = self._replicas.broadcast(self._replicas.channel([place.shape], place.dtype), [place])
        found, epoch, batch, steps, num_own = map(int, agreed)
        if found:
            self.epoch, self.batch, self.steps = epoch, batch, steps
        self._began = self.position
        if self.backend.graphs_tell_more and self.model.run_eagerly and self.leads and self._replicas.size > 1:
            self.session.notice(
                f"Model {self.model.name!r} runs eagerly on {self._replicas.size} workers, where less is known of a "
                "step than from its graph: losses of your own that are sums without a value a row count as means, "
                "tables that are looked up by row and once a batch count as looked up by row, and logs under other "
                "names than their metrics' are averaged. Compile it with run_eagerly=False, or pass workers=1."
            )
        self.weights.send(optimizers=True)
        self.weights.set_own(kept.own if kept is not None else None, num_own)
        if again is not None and again.epochs and not self.batch:
            self._validate_again(again)

    def _validate_again(self, kept: FitCheckpoint) -> None:
        """Let the weights of a checkpoint be validated whose scorer has ended with the run; it may be the best one."""
        assert self.beside is not None
        if self.beside.epoch_ends(kept.epochs[-1]) and self.keeper.judges_later:
            self.keeper.scored(self.model, {})
            self.keeper.keep(kept)

    def epoch_ends(self, epoch: int) -> None:
        """See :meth:`Worker.epoch_ends`."""
        if self.beside is not None and self.beside.epoch_ends(epoch):
            self.note_validated()

    def note_validated(self) -> None:
        """The weights are those that were validated, or that the scorer will."""
        if self.keeper.judges_by_validation:
            self._validated = self._fingerprint()

    def _fingerprint(self) -> list[int]:
        return [checksum(value_of(one)) for one in (*self.model.weights, *torch_buffers(self.model))]

    def history_of(self, history: History) -> dict[str, list[Any]]:
        """See :meth:`Worker.history_of`."""
        found = super().history_of(history)
        return found if self.beside is None else {**found, **self.beside.found(history.epoch)}

    def stepped(self, told: Told, *, ends: bool) -> Any:
        """See :meth:`Worker.stepped`."""
        last = self._control.epoch_ends = self.count_step()
        if last:
            self._average_statistics()
        if last or not self._guard.num_looks:
            self._guard.look(self.steps)
        if not (last or (ends and self._control.gather)):
            self._ungathered = told
            return told.values
        self._ungathered = None
        return self.metrics.gather(told)

    def _average_statistics(self) -> None:
        differed = self.weights.average_statistics()
        if differed and self.leads and not self._has_told:
            self._has_told = True
            others = f", and {len(differed) - 1} more," if len(differed) > 1 else ""
            self.session.notice(
                f"Weight {differed[0]!r}{others} differed between the workers at the end of an epoch, and the mean "
                "over them was taken. That is right for a moving average. For a queue, a memory bank or a count pass "
                "workers=1."
            )

    def _cut_short(self) -> None:
        """The epoch ends here, after what was not to be its last step."""
        told, self._ungathered = self._ungathered, None
        if told is not None:
            told.values.update(self.metrics.gather(told))  # Keras has these logs in hand
        if self.batch:
            self._average_statistics()

    def validated(self, told: Told, *, ends: bool, last: bool) -> Any:
        """See :meth:`Worker.validated`."""
        return self.metrics.gather(told) if last or (ends and self._control.test_batches) else told.values

    def _keep(self) -> None:
        """Take a checkpoint: all workers tell what is their own, the first one writes."""
        if self.batch:
            self.metrics.gather(Told({}))
        own = self.weights.own()
        if not self.leads:
            return
        validated, self._validated = self._validated, None
        self.keep(
            self.model.history,
            as_scored=validated is None or validated == self._fingerprint(),
            own=own,
            metrics=self.metrics.counted() if self.batch else [],
            read=[*self._read, (self.task.run, self._replicas.size, self._taken_by_all())],
        )

    def _taken_by_all(self) -> dict[int, list[BatchRange]]:
        """What each worker has trained on since this process began: the same batches."""
        taken = self.epochs.taken(self._began, self.position, self.task.batch_size)
        return dict.fromkeys(range(self._replicas.size), taken)

    def outcome(self, callbacks: Any) -> Outcome | None:
        """See :meth:`Worker.outcome`."""
        if not self.leads:
            return None
        history = callbacks._history
        if self.beside is not None:
            self.beside.finish()
        applied = self._taken_by_all()
        for run, _, before in self._read:
            if run == self.task.run:  # an earlier attempt, whose workers may have taken their accounts with them
                applied = {rank: [*before[rank], *taken] for rank, taken in applied.items()}
        return self.trained(
            self.history_of(history),
            history.epoch,
            steps=self.steps,
            read=[read for read in self._read if read[0] != self.task.run],
            all_reduce_s=self._replicas.all_reduce_s,
            waiting_s=self._replicas.waiting_s,
            applied=applied,
        )


class _Together(CallbackSync):
    """A moment of all workers, of which the first one notes what was validated."""

    def __init__(self, worker: SynchronousWorker, *known: Any) -> None:
        super().__init__(*known)
        self._worker = worker

    def validated(self) -> None:
        """See :meth:`CallbackSync.validated`."""
        self._worker.note_validated()
