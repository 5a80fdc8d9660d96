"""The training loop of every worker of ``fit`` of a module, over its share of each batch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any

from dask_train.collectives import ProcessGroup
from dask_train.collectives.replaceable import ReplaceableGroup
from dask_train.fitting.spec import VALIDATION
from dask_train.fitting.torch_module.agreed import ModuleBuffers, Named, seed_rank
from dask_train.fitting.torch_module.changed_by_calls import ChangedByCalls
from dask_train.fitting.torch_module.local_steps import LocalSteps, OuterSteps
from dask_train.fitting.torch_module.loop import TRAINING, ModuleLoop
from dask_train.fitting.torch_module.metrics import ModuleMetrics
from dask_train.fitting.torch_module.optimizers import load_state
from dask_train.fitting.torch_module.share_steps import ShareSteps
from dask_train.fitting.torch_module.shares import ModuleShares, computing_alike
from dask_train.fitting.torch_module.steps import Done, ModuleBatch, ModuleSteps
from dask_train.fitting.torch_module.task import ModuleTask
from dask_train.fitting.torch_module.training_objects import TrainingObjects
from dask_train.fitting.torch_module.trials import left_as_after_a_run, left_as_it_was, modes_kept
from dask_train.fitting.torch_module.values import check_shapes, from_plain, plain, shapes_of
from dask_train.fitting.wire import WireNotice
from dask_train.role.dataset import DataSet
from dask_train.role.session import Session
from dask_train.trainers.common.agreement import GroupAgreement
from dask_train.trainers.common.entry import LoopObserver
from dask_train.trainers.common.group import process_group
from dask_train.trainers.common.guard import Guard
from dask_train.trainers.common.outcome import Outcome
from dask_train.trainers.common.rank_state import RankState
from dask_train.trainers.common.sync_point import LeftError

# The notice for a module that the user has compiled.
NOT_COMPILED = (
    "The module was compiled with torch.compile, and is trained without its compiled code, which does not travel. The "
    "weights are the same but for rounding, and your compiled module has them afterwards."
)
# The notice for local steps (``sync_every=``).
STEPS_ALONE = (
    "{workers} workers have taken steps alone, and have moved the weights that they share after {every} of them and at "
    "the end of each epoch (sync_every={every}): another algorithm, whose model is not that of one process and depends "
    "on the number of workers."
)
# Likely cause of parameters and buffers that differ between workers, and what to change.
ADVICE = (
    "The module changes them, as it is called, by what that worker's rows are: a queue, a codebook, moving averages "
    "that are not kept by a normalisation of torch's own; or by random numbers of its own.",
    "Pass workers=1; or keep what is learnt of rows in parameters that gradients train, or in a BatchNorm, whose "
    "moving averages are averaged over the workers.",
)


def fit_module_synchronously(task: ModuleTask, session: Session, observe: LoopObserver | None = None) -> Outcome | None:
    """Train, and return the outcome in the first worker, None in the others.

    ``observe`` is called with the loop before training begins.
    """
    with ExitStack() as stack:
        group = stack.enter_context(process_group(task, session))
        if task.num_shares:
            if isinstance(group, ReplaceableGroup) and group.received is not None:
                group.stay_on_one_host("virtual_workers= is for workers of one host")
            stack.enter_context(computing_alike(group))
        if task.in_process is not None:
            stack.enter_context(left_as_after_a_run(task.in_process.model))
        worker = ModuleWorker(task, session, group)
        if task.in_process is not None:
            stack.callback(worker.loop.settle)
        if observe is not None:
            observe(worker.loop)
        try:
            return worker.fit()
        except LeftError:
            return None


def evaluate_synchronously(task: ModuleTask, session: Session) -> dict[str, Any] | None:
    """Evaluate on all rows of the data; return loss and metrics by name in the first worker, None in the others."""
    assert session._data is not None
    with ExitStack() as stack:
        group = stack.enter_context(process_group(task, session))
        if task.in_process is not None:  # other processes evaluate a copy
            stack.enter_context(left_as_it_was(task.in_process.model.module))
            stack.enter_context(modes_kept(task.in_process.model.module))
        objects = TrainingObjects(task, session)
        seed_rank(task.random, session.rank)
        metrics = objects.metrics_of_validation
        steps = ModuleSteps(objects.module, objects.loss, group, tells_outputs=metrics.look_at_rows)
        passing = Pass(task, steps, metrics, group)
        batches = session.batches(batch_size=task.validation_batch_size, shuffle=False)
        objects.module.eval()
        with closing(batches):  # type: ignore[type-var]
            passing.through(batches, session._data, -(-session.num_rows // task.validation_batch_size))
        return passing.metrics.results() if session.rank == 0 else None


class Pass:
    """An evaluation pass over rows, by all workers."""

    def __init__(self, task: ModuleTask, steps: ModuleSteps, metrics: ModuleMetrics, group: ProcessGroup) -> None:
        assert task.validation_columns is not None
        self._columns, self._steps, self._leads = task.validation_columns, steps, group.rank == 0
        self.metrics = metrics

    def through(self, batches: Iterator[Any], data: DataSet, num_batches: int) -> None:
        """Evaluate that many batches; the caller has set the module's mode."""

        def some_row() -> ModuleBatch:
            return self._steps.packed(self._columns, data.some_row())

        self.metrics.reset()
        for _ in range(num_batches):
            done = self._steps.evaluate(self._steps.packed(self._columns, next(batches)), some_row)
            if self._leads:
                with self._steps.in_first_worker():
                    self.metrics.update(done.loss, done.outputs, done.y, done.rows)


class ModuleWorker:
    """One worker: its module and optimizer, in a training loop.

    Attributes
    ----------
    loop
        The training loop.
    """

    def __init__(self, task: ModuleTask, session: Session, group: ProcessGroup) -> None:
        assert session._data is not None
        self._task, self._session, self._group, self._data = task, session, group, session._data
        self._own = TrainingObjects(task, session)
        self._module, self._metrics = self._own.module, self._own.metrics
        what = "Gradients" if task.outer is None else "Differences of weights"
        self._wire_notice = WireNotice(task.wire, session, group, what)
        buffers_and_steps = self._made_for_shares() if task.num_shares else self._made_for_rank()
        self._buffers: ModuleBuffers | ModuleShares = buffers_and_steps[0]
        self._steps: ModuleSteps = buffers_and_steps[1]
        self._outer: OuterSteps | None = None
        self._has_moved = False  # whether weights were moved by the outer optimizer
        if task.outer is not None:
            looks = self._metrics.look_at_rows
            self._local = LocalSteps(self._module, self._own.loss, group, tells_outputs=looks)
            self._outer = OuterSteps(self._module, group, task.outer, rounds=task.wire is not None)
        self._agreement = GroupAgreement(group)
        self.loop = ModuleLoop(task, session, self._agreement)
        same = Named.same_on_all(self._module)
        is_copied = task.in_process is None or task.checkpoint is not None
        self._shapes = shapes_of(self._module) if is_copied else None
        self._changed: ChangedByCalls | None = None
        if self._agreement.replaceable is not None and group.size > 1:  # one alone has no others that could go on
            self._changed = ChangedByCalls(self._module, self.loop)
        self._guard = Guard(same, group, Named.value_of, Named.assign, ADVICE)
        if task.was_compiled and self.loop.leads:
            session.notice(NOT_COMPILED)
        if task.outer is not None and self.loop.leads:
            session.notice(STEPS_ALONE.format(every=task.outer.every, workers=group.size))

    def _made_for_rank(self) -> tuple[ModuleBuffers, ModuleSteps]:
        """Return the worker's buffers and steps, with one share of a batch per worker."""
        task = self._task
        seed_rank(task.random, self._session.rank)
        steps = ModuleSteps(
            self._module,
            self._own.loss,
            self._group,
            tells_outputs=self._metrics.look_at_rows,
            rounds=task.wire is not None,
            trains=task.outer is None,
        )
        return ModuleBuffers(self._module, self._group), steps

    def _made_for_shares(self) -> tuple[ModuleShares, ShareSteps]:
        """Return the shares and steps of a worker, with a fixed number of shares (``virtual_workers=``)."""
        task, group, session = self._task, self._group, self._session
        assert task.random is not None
        session._context.num_shares = task.num_shares
        shares = ModuleShares(self._module, group, task.num_shares, task.random)
        steps = ShareSteps(
            self._module,
            self._own.loss,
            group,
            tells_outputs=self._metrics.look_at_rows,
            shares=shares,
            global_rows=lambda: session.global_rows,
        )
        return shares, steps

    def fit(self) -> Outcome | None:
        """Train to the end."""
        loop, own = self.loop, self._own
        state = RankState()
        state.shared(TRAINING, self._state, lambda state: own.restore(from_plain(state)))
        if (outer := self._outer) is not None:
            state.shared("outer", lambda: plain(outer.state()), lambda state: self._restore_outer(from_plain(state)))
            state.own(
                "optimizer",
                lambda: plain(own.optimizer.state_dict()),
                lambda state: load_state(own.optimizer, from_plain(state)),
                may_begin_anew=True,
            )
        state.shared("metrics", self._metrics.state, self._go_on_counting, within_epoch=True, led=True)
        self._buffers.keep(state, loop)
        if self._changed is not None:
            self._changed.keep(state)
        loop.keep(state)
        for epoch in loop.epochs():
            if loop.position.batch == 0:
                self._metrics.reset()
            self._module.train()
            for columns in loop.batches():
                self._step(columns)
                self._step_done()
            if self._outer is not None and not loop.stopped:
                self._move_weights(self._outer)
            self._buffers.average()
            if loop.stopped:
                loop.epoch_done(**self._results())
                break
            self._look()
            logs = {**self._results(), **self._validated(epoch)}
            own.schedule(epoch, self._agreement.of_first(logs))
            loop.epoch_done(**logs)
        self._wire_notice.training_ends()
        outcome = loop.outcome(
            lambda: {} if self._task.in_process is not None else {TRAINING: plain(own.state(), copies=False)}
        )
        if self._agreement.replaceable is not None:
            self._agreement.replaceable.confirm()  # one that is lost before needs the others
        return outcome

    def _step_done(self) -> None:
        """Count a step, and pass the sync point if all workers have the same weights now."""
        loop = self.loop
        loop.count_step()
        if loop.ends_epoch or not (self._outer is None or self._outer.is_due(loop.position.batch)):
            return
        if self._outer is not None:
            self._move_weights(self._outer)
        loop.steps_done(**(self._metrics.means() if loop.report_due else {}))

    def _move_weights(self, outer: OuterSteps) -> None:
        """End a round of local steps: the outer optimizer moves the shared weights."""
        outer.move()
        for done in self._local.take_results():
            if self.loop.leads:
                self._metrics.update(done.loss, done.outputs, done.y, done.rows)
        if not self._has_moved:
            self._guard.look(self.loop.position.steps)
            self._has_moved = True

    def _restore_outer(self, state: dict[str, Any]) -> None:
        assert self._outer is not None
        workers, size = self._outer.restore(state), self._group.size
        if workers != size and self.loop.leads:
            self._session.notice(
                f"The checkpoint was made by {workers} workers that take steps alone, and this run has {size}: the "
                "optimizers of all of them begin with the state of the first one's."
            )

    def _state(self) -> Any:
        return plain(self._own.state())

    def _go_on_counting(self, state: bytes) -> None:
        """Restore the metrics of the epoch that continues."""
        position = self.loop.position
        if self.loop.leads and (unknown := self._metrics.restore(state)):
            self._session.notice(
                f"Of epoch {position.epoch + 1} {', '.join(unknown)} has the rows from step {position.batch + 1} on: "
                "the checkpoint was made with other metrics."
            )

    def _step(self, columns: Any) -> None:
        steps, layout, position = self._steps, self._task.columns, self.loop.position
        if self._outer is None and position.batch and position.steps == self.loop.start.steps + 1:
            self._look()  # after the first step, as after each epoch

        def some_row() -> ModuleBatch:
            return steps.packed(layout, self._data.some_row())

        if self._changed is not None:
            self._changed.before_calls()
        if self._outer is None:
            steps.train(steps.packed(layout, columns), some_row, self._own.step, self._count)
        else:
            self._local.train(steps.packed(layout, columns), some_row, self._own.step)

    def _look(self) -> None:
        """Check that all workers have the same parameters and buffers, and all shares the same buffers.

        Tensors have to have the shapes that they began with: those of the client, which get their values.
        """
        if self._shapes is not None:
            check_shapes(self._shapes, shapes_of(self._module))
        self._guard.look(self.loop.position.steps)
        self._buffers.check_alike(ADVICE)

    def _count(self, done: Done) -> None:
        """Update metrics with a step's results, and mirror this worker's own state."""
        if self.loop.leads:
            with self._steps.in_first_worker():
                self._metrics.update(done.loss, done.outputs, done.y, done.rows)
        if self._changed is not None:
            self._changed.after_calls()
        self.loop.mirror_step()

    def _results(self) -> dict[str, Any]:
        return self._results_of(self._metrics)

    def _results_of(self, metrics: ModuleMetrics) -> dict[str, Any]:
        """Return the results of metrics in the first worker; empty in the others."""
        if not self.loop.leads:
            return {}
        with self._steps.in_first_worker():
            return metrics.results()

    def _validated(self, epoch: int) -> dict[str, Any]:
        """Return the validation scores, with ``val_`` before their names; empty in epochs without validation."""
        freq = self._task.validation_freq
        validates = (epoch + 1) % freq == 0 if isinstance(freq, int) else epoch + 1 in freq
        if self._task.validation_columns is None or not validates:
            return {}
        data, batch_size = self._session.dataset(VALIDATION), self._task.validation_batch_size
        num_batches = -(-data.num_rows // batch_size)
        batches: Any = data.batches(batch_size=batch_size, shuffle=False)
        passing = Pass(self._task, self._steps, self._own.metrics_of_validation, self._group)
        self._module.eval()
        with closing(batches):
            passing.through(batches, data, min(num_batches, self._task.validation_steps or num_batches))
        return {f"val_{name}": value for name, value in self._results_of(passing.metrics).items()}
