"""What every worker of ``fit`` of a module does: the loop that one would write by hand, on its share of each batch."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from typing import Any

from dask_train.collectives import ProcessGroup
from dask_train.data.account import BatchRange
from dask_train.errors import CheckpointError
from dask_train.fitting.spec import VALIDATION
from dask_train.fitting.torch_module.agreed import Agreed, Buffers, Named, seed_rank
from dask_train.fitting.torch_module.checkpoints import check_same, mode_of
from dask_train.fitting.torch_module.in_place import left_as_after_a_run
from dask_train.fitting.torch_module.metrics import Metrics
from dask_train.fitting.torch_module.opened import Opened
from dask_train.fitting.torch_module.steps import Batch, ModuleSteps
from dask_train.fitting.torch_module.task import ModuleTask
from dask_train.fitting.torch_module.values import opened, plain
from dask_train.role.dataset import DataSet
from dask_train.role.session import Session
from dask_train.trainers.common.checkpointing import Checkpointer
from dask_train.trainers.common.epochs import Epochs
from dask_train.trainers.common.fit_checkpoint import FitCheckpoint
from dask_train.trainers.common.group import process_group
from dask_train.trainers.common.guard import Guard
from dask_train.trainers.common.outcome import Outcome, Read
from dask_train.trainers.common.score_names import check_stop_told, scores_of

# How often scores are told between the ends of epochs.
REPORT_INTERVAL_S = 0.5
# The likely cause of parameters and buffers that are not the same on all workers, and what to change.
ADVICE = (
    "The module changes them, as it is called, by what that worker's rows are: a queue, a codebook, moving averages "
    "that are not kept by a normalisation of torch's own; or by random numbers of its own.",
    "Pass workers=1; or keep what is learnt of rows in parameters that gradients train, or in a BatchNorm, whose "
    "moving averages are averaged over the workers.",
)


def fit_module_synchronously(task: ModuleTask, session: Session) -> Outcome | None:
    """Train; what it has come to in the first worker, None in the others."""
    with ExitStack() as stack:
        replicas = stack.enter_context(process_group(task, session))
        if task.in_place is not None:
            stack.enter_context(left_as_after_a_run(task.in_place.model))
        worker = ModuleWorker(task, session, replicas)
        if task.in_place is not None:
            stack.callback(worker.settle)
        return worker.fit()


def evaluate_synchronously(task: ModuleTask, session: Session) -> dict[str, Any] | None:
    """Evaluate on all rows of the data; loss and metrics by name in the first worker, None in the others."""
    assert session._data is not None
    with process_group(task, session) as replicas:
        found = Opened(task, session)
        seed_rank(task.random, session.rank)
        metrics = found.metrics_of_validation
        steps = ModuleSteps(found.module, found.loss, replicas, tells_outputs=metrics.look_at_rows)
        passing = Pass(task, steps, metrics, replicas)
        turn = session.batches(batch_size=task.validation_batch_size, shuffle=False)
        found.module.eval()
        with closing(turn):  # type: ignore[type-var]
            passing.through(turn, session._data, -(-session.num_rows // task.validation_batch_size))
        return passing.metrics.results() if session.rank == 0 else None


class Pass:
    """A turn through rows that nothing is trained on, by all workers."""

    def __init__(self, task: ModuleTask, steps: ModuleSteps, metrics: Metrics, replicas: ProcessGroup) -> None:
        assert task.validation_layout is not None
        self._layout, self._steps, self._leads = task.validation_layout, steps, replicas.rank == 0
        self.metrics = metrics

    def through(self, batches: Iterator[Any], data: DataSet, num_batches: int) -> None:
        """Count so many batches of the data; the module is in the mode for it."""

        def some_row() -> Batch:
            return self._steps.packed(self._layout, data.some_row())

        self.metrics.reset()
        for _ in range(num_batches):
            done = self._steps.evaluate(self._steps.packed(self._layout, next(batches)), some_row)
            if self._leads:
                self.metrics.update(done.loss, done.outputs, done.y, done.rows)


class ModuleWorker:
    """One worker: its module and optimizer, and how far it is."""

    def __init__(self, task: ModuleTask, session: Session, replicas: ProcessGroup) -> None:
        assert session._data is not None
        self._task, self._session, self._replicas, self._data = task, session, replicas, session._data
        self._leads = session.rank == 0
        self._own = Opened(task, session)
        self._module, self._optimizer, self._scheduler = self._own.module, self._own.optimizer, self._own.scheduler
        seed_rank(task.random, session.rank)
        looks = self._own.metrics.look_at_rows
        self._steps = ModuleSteps(self._module, self._own.loss, replicas, tells_outputs=looks)
        self._agreed, self._buffers = Agreed(replicas), Buffers(self._module, replicas)
        same = Named.same_on_all(self._module)
        self._guard = Guard(same, replicas, Named.value_of, Named.assign, ADVICE)
        self._metrics, self._told_s = self._own.metrics, time.monotonic()
        self._epochs = Epochs(-(-session.num_rows // task.batch_size), task.steps_per_epoch)
        self._keeper = Checkpointer(task, session, self._epochs, mode_of)
        self._epoch = self._batch = self._num_steps = self._began = 0
        self._history: dict[str, list[Any]] = {}
        self._epochs_told: list[int] = []
        self._read: list[Read] = []
        self._warnings = [self._epochs.warning()]

    def fit(self) -> Outcome | None:
        """Train to the end."""
        self._begin()
        epochs, task = self._epochs, self._task
        batches: Any = self._session.batches(
            epochs=max(1, -(-epochs.first(task.epochs) // epochs.batches_of_data)),
            batch_size=task.batch_size,
            shuffle=task.shuffle,
            seed=task.seed,
            start=divmod(self._position, epochs.batches_of_data),
        )
        with closing(batches):
            while self._epoch < task.epochs and not self._train_epoch(batches):
                pass
        return self._outcome() if self._leads else None

    def settle(self) -> None:
        """Wait for a checkpoint that is being written, however training has ended."""
        with suppress(CheckpointError):  # the run ends with another error, or has seen this one
            self._keeper.finish()

    @property
    def _position(self) -> int:
        return self._epochs.first(self._epoch) + self._batch

    def _begin(self) -> None:
        """Go on with the last checkpoint, if there is one to go on with."""
        kept = self._keeper.load() if self._leads else None
        if kept is not None:
            if kept.run != self._task.run:
                check_same(kept.configuration, self._task.configuration)
            self._history, self._epochs_told, self._read = kept.history, kept.epochs, kept.read
        told = None if kept is None else (kept.header, kept.epoch, kept.batch, kept.steps, kept.own)
        agreed = self._agreed.on(told)
        if agreed is not None:
            state, self._epoch, self._batch, self._num_steps, own = agreed
            self._own.restore(opened(state["training"]))
            if len(own) == self._replicas.size:
                self._buffers.set_own(own[self._replicas.rank])
            if self._leads and self._batch:
                self._go_on_counting(state["metrics"])
        self._began = self._position

    def _go_on_counting(self, state: bytes) -> None:
        """Let metrics have what was counted of the epoch that goes on."""
        if unknown := self._metrics.restore(state):
            self._session.notice(
                f"Of epoch {self._epoch + 1} {', '.join(unknown)} has the rows from step {self._batch + 1} on: the "
                "checkpoint was made with other metrics."
            )

    def _train_epoch(self, batches: Iterator[Any]) -> bool:
        """Train the rest of an epoch; whether training ends with it."""
        size = self._epochs.size(self._epoch)
        if self._batch == 0:
            self._metrics.reset()
        self._module.train()
        while self._batch < size:
            self._step(next(batches))
            if self._batch < size and self._stops_within():
                return self._cut_short()
        self._buffers.average()
        self._guard.look(self._num_steps)
        logs = self._logs()
        self._own.schedule(self._agreed.on(logs))
        self._epoch, self._batch = self._epoch + 1, 0
        return self._epoch_over(logs)

    def _step(self, columns: Any) -> None:
        steps, layout = self._steps, self._task.layout

        def some_row() -> Batch:
            return steps.packed(layout, self._data.some_row())

        done = steps.train(steps.packed(layout, columns), some_row, self._own.step)
        self._batch, self._num_steps = self._batch + 1, self._num_steps + 1
        if self._leads:
            self._metrics.update(done.loss, done.outputs, done.y, done.rows)
        if not self._guard.num_looks:
            self._guard.look(self._num_steps)

    def _stops_within(self) -> bool:
        """Report, and keep a checkpoint, where it is time; whether the run is to end. All workers agree."""
        keep = halt = False
        if self._leads:
            keep, halt = self._keeper.due(self._num_steps, epoch_ends=False), self._session.should_stop()
            if time.monotonic() - self._told_s >= REPORT_INTERVAL_S:
                self._told_s = time.monotonic()
                scores = scores_of(self._metrics.means())
                self._session.report(epoch=self._epoch, step=self._batch, num_steps=self._epochs.num_steps, **scores)
        keep, halt = self._agreed.on_flags(keep, halt)
        if keep or (halt and self._task.checkpoint is not None):
            self._keep()
        return halt

    def _cut_short(self) -> bool:
        """End within an epoch, whose scores are of some of its rows."""
        self._buffers.average()
        if self._leads:
            self._tell(self._metrics.results())
        return True

    def _logs(self) -> dict[str, Any]:
        """What metrics say of the epoch that has ended, and of the validation data."""
        logs = self._metrics.results() if self._leads else {}
        freq = self._task.validation_freq
        validates = (self._epoch + 1) % freq == 0 if isinstance(freq, int) else self._epoch + 1 in freq
        if self._task.validation_layout is None or not validates:
            return logs
        data, batch_size = self._session.dataset(VALIDATION), self._task.validation_batch_size
        num_batches = -(-data.num_rows // batch_size)
        turn: Any = data.batches(batch_size=batch_size, shuffle=False)
        passing = Pass(self._task, self._steps, self._own.metrics_of_validation, self._replicas)
        self._module.eval()
        with closing(turn):
            passing.through(turn, data, min(num_batches, self._task.validation_steps or num_batches))
        found = passing.metrics.results() if self._leads else {}
        return {**logs, **{f"val_{name}": value for name, value in found.items()}}

    def _epoch_over(self, logs: dict[str, Any]) -> bool:
        keep = halt = False
        if self._leads:
            self._tell(logs)
            self._session.report(epoch=self._epoch - 1, num_steps=self._epochs.num_steps, **scores_of(logs))
            self._told_s = time.monotonic()
            self._check_names()
            self._keeper.scored(self._module, logs)
            keep, halt = self._keeper.due(self._num_steps, epoch_ends=True), self._session.should_stop()
        keep, halt = self._agreed.on_flags(keep, halt)
        if keep:
            self._keep()
        return halt

    def _tell(self, logs: dict[str, Any]) -> None:
        self._epochs_told.append(self._epoch - (self._batch == 0))
        for name, value in logs.items():
            self._history.setdefault(name, []).append(value)

    def _check_names(self) -> None:
        check_stop_told(self._task.stop_names, self._history)

    def _keep(self) -> None:
        """Take a checkpoint: all workers tell what is their own, the first one writes."""
        own = self._buffers.own()
        if not self._leads:
            return
        kept = FitCheckpoint(
            run=self._task.run,
            order=self._keeper.order(),
            configuration=self._task.configuration,
            rates=[float(group["lr"]) for group in self._optimizer.param_groups],
            epoch=self._epoch,
            batch=self._batch,
            steps=self._num_steps,
            header={"training": plain(self._own.state()), "metrics": self._metrics.state()},
            arrays=[],
            own=own,
            history={name: list(values) for name, values in self._history.items()},
            epochs=list(self._epochs_told),
            callbacks=[],
            read=[*self._read, (self._task.run, self._replicas.size, self._taken_by_all())],
        )
        self._keeper.keep(kept)

    def _taken_by_all(self) -> dict[int, list[BatchRange]]:
        taken = self._epochs.taken(self._began, self._position, self._task.batch_size)
        return dict.fromkeys(range(self._replicas.size), taken)

    def _outcome(self) -> Outcome:
        self._keeper.finish()
        best = self._keeper.best()
        if best is not None:
            self._own.restore(opened(best.header["training"]))
        applied = self._taken_by_all()
        for run, _, before in self._read:
            if run == self._task.run:  # an earlier attempt, whose workers may have taken their accounts with them
                applied = {rank: [*before.get(rank, []), *taken] for rank, taken in applied.items()}
        in_place = self._task.in_place is not None
        return Outcome(
            header={} if in_place else {"training": plain(self._own.state())},
            arrays=[],
            history=self._history,
            epoch=self._epochs_told,
            callbacks=[],
            steps=self._num_steps,
            read=[read for read in self._read if read[0] != self._task.run],
            num_rows=self._session.num_rows,
            warnings=[warning for warning in (*self._warnings, self._keeper.warning) if warning],
            num_steps=self._epochs.num_steps,
            best_epoch=None if best is None else best.epoch - 1,
            all_reduce_s=self._replicas.all_reduce_s,
            waiting_s=self._replicas.waiting_s,
            applied=applied,
        )
