"""Workers that train one model together: gradients are summed before they are applied, in every step."""

from __future__ import annotations

from contextlib import ExitStack, closing
from typing import Any

import keras
import numpy as np

from dask_train.collectives import ProcessGroup
from dask_train.fitting.backends import Backend, backend_of
from dask_train.fitting.roles.agreement import CallbackAgreement
from dask_train.fitting.roles.applying import ApplyLast
from dask_train.fitting.roles.compiled import compiled_of_all
from dask_train.fitting.roles.control import Control
from dask_train.fitting.roles.global_batch import global_batch_of_all
from dask_train.fitting.roles.gradients import summed_gradients
from dask_train.fitting.roles.in_process import left_as_keras_would
from dask_train.fitting.roles.loop import METRICS, OWN, KerasLoop
from dask_train.fitting.roles.metrics import MetricSums, StepLogs
from dask_train.fitting.roles.moments import moments_of_all
from dask_train.fitting.roles.reductions import losses_of_all
from dask_train.fitting.roles.spool import Spool, spool_credentials
from dask_train.fitting.roles.validation import ValidationBeside
from dask_train.fitting.roles.weights import Weights, assign, check_on_cpu, seeds_of_rank, value_of
from dask_train.fitting.roles.worker import Worker
from dask_train.fitting.spec import FitTask
from dask_train.fitting.wire import WireNotice
from dask_train.role.session import Session
from dask_train.trainers.common.entry import LoopObserver
from dask_train.trainers.common.group import process_group
from dask_train.trainers.common.guard import Guard
from dask_train.trainers.common.outcome import Outcome
from dask_train.trainers.common.sync_point import LeftError


def fit_synchronously(task: FitTask, session: Session, observe: LoopObserver | None = None) -> Outcome | None:
    """Train; return the trained model in the first worker, None in the others.

    ``observe`` is called with the loop before training begins.
    """
    with ExitStack() as stack:
        backend = backend_of(keras.backend.backend())
        group = stack.enter_context(process_group(task, session))
        worker = SynchronousWorker(task, session, backend, group)
        if task.scored_elsewhere and session.rank == 0:
            spool = Spool(session.peers["worker"][0], spool_credentials(task, session), worker.keeper)
            worker.loop.beside = stack.enter_context(closing(ValidationBeside(task, session, worker.model, spool)))
        if task.in_process is not None:
            stack.enter_context(left_as_keras_would(worker))
        if observe is not None:
            observe(worker.loop)
        if group.size > 1:
            rounds = task.wire is not None
            stack.enter_context(summed_gradients(group, backend, worker.share, worker.last, rounds=rounds))
            stack.enter_context(losses_of_all(group, backend, worker.share))
            stack.enter_context(compiled_of_all(group, backend, worker.share, worker.model))
            stack.enter_context(moments_of_all(group, backend, worker.share))
            stack.enter_context(global_batch_of_all(group, backend, worker.share))
        try:
            return worker.fit()
        except LeftError:
            return None


class SynchronousWorker(Worker):
    """A worker that agrees with the others in every step."""

    metrics: MetricSums
    moment: CallbackAgreement
    weights: Weights

    def __init__(self, task: FitTask, session: Session, backend: Backend, group: ProcessGroup) -> None:
        super().__init__(task, session, backend)
        model, self._group = self.model, group
        seeds_of_rank(model, group.rank)
        self.weights = Weights(model, group)
        self._guard = Guard(self.weights.same, group, value_of, assign)
        self._control = Control(model, group)
        self.metrics = MetricSums(model, group, self.share)
        self.moment = CallbackAgreement(model, group, self._control, self.weights, session.should_stop, self._cut_short)
        self.loop = self.moment.loop = KerasLoop(task, session, self.moment, model, self.data.schema)
        self._fixed: list[np.ndarray] | None = None  # weights after the first step, where calls are to leave them alone
        self.last = ApplyLast(backend, model, self._own_variables, self._mirror) if self.moment.replaceable else None
        self.applies_last = self.last is not None
        if self.applies_last:
            check_on_cpu(model)
        self._is_mirrored = False  # whether metrics are asked for what they have counted in the step in hand
        self._wire_notice = WireNotice(task.wire, session, group)
        self._has_warned = False  # of weights that may be no averages
        self._ungathered: StepLogs | None = None  # the logs of the last step, where they are of this worker alone

    def begin(self, callbacks: Any) -> None:
        """Resume from the last checkpoint, if there is one; all workers with the first one's weights."""
        metrics = self.metrics
        if not self.loop.takes_place:
            self.weights.send(optimizers=True)
        state = self.state()
        state.own(OWN, self.weights.own, self.weights.set_own, may_begin_anew=True)
        state.own(METRICS, self._counted, metrics.carry, within_epoch=True, regroup=metrics.regrouped)
        passing = self.weights.passing_variables() if self.applies_last else []
        state.passing(
            "counts and statistics",
            lambda: [np.array(value_of(variable)) for variable in passing],
            lambda values: assign(passing, values),
        )
        self.loop.on_resize(self._hand_over, self.loop.deal_again)
        self.loop.ends_again = self.callbacks_end_again
        self.loop.keep(state)
        self.resume(callbacks)
        self.loop.validate_again()
        if self.backend.graphs_tell_more and self.model.run_eagerly and self.leads and self._group.size > 1:
            self.session.notice(
                f"Model {self.model.name!r} runs eagerly on {self._group.size} workers, where less is known of a "
                "step than from its graph: losses of your own that are sums without a value a row are refused, "
                "tables that are looked up by row and once a batch count as looked up by row, and logs under other "
                "names than their metrics' are averaged. Compile it with run_eagerly=False, or pass workers=1."
            )

    def _counted(self) -> list[np.ndarray]:
        return self.metrics.held() if self.position.batch or self._is_mirrored else []

    def batches(self) -> Any:
        """See :meth:`Worker.batches`; they are dealt again where the number of workers changes."""
        return self.loop.open_batches()

    def _hand_over(self) -> None:
        """Let nothing of the running epoch be one worker's alone but the first one's: others may leave, or join."""
        if self.position.batch:
            self._average_statistics()
            self.metrics.give_to_first()

    def train_step(self) -> Any:
        """See :meth:`Worker.train_step`."""
        step = super().train_step()
        return step if self.last is None else self.last.step(step)

    def _own_variables(self) -> list[Any]:
        counts = [variable for metric in self.model.metrics for variable in metric.variables]
        return [*self.weights.own_variables(), *self.weights.passing_variables(), *counts]

    def _mirror(self) -> None:
        """Mirror what is this worker's own, once it is final for this step."""
        if self.share.trial is not None:
            return
        if self.share.set_back is not None:
            self.share.set_back()
        if self._fixed is not None:
            self._check_fixed(self._fixed)
            self._fixed = None
        self._is_mirrored = True
        self.loop.mirror_step()
        self._is_mirrored = False

    def stepped(self, step_logs: StepLogs, *, ends: bool) -> Any:
        """See :meth:`Worker.stepped`."""
        if self.loop.is_behind_step and self.metrics.carries:
            self.loop.start_all_again("a worker was lost whose metrics have no variables before a step")
        self.loop.count_step()
        if self.applies_last and self.position.steps == self.loop.start.steps + 1:
            self._fixed = [np.array(value_of(variable)) for variable in self.weights.fixed_variables()]
        last = self._control.epoch_ends = self.loop.ends_epoch
        if last:
            self._average_statistics()
        if last or self.position.steps == self.loop.start.steps + 1:
            self._guard.look(self.position.steps)
        if not (last or (ends and self._control.gather)):
            self._ungathered = step_logs
            return step_logs.values
        self._ungathered = None
        return self.metrics.gather(step_logs)

    def _check_fixed(self, before: list[np.ndarray]) -> None:
        """Check that the second step's call of the model has set no weights: half a step's would be handed over."""
        for variable, value in zip(self.weights.fixed_variables(), before, strict=True):
            if not np.array_equal(value_of(variable), value, equal_nan=value.dtype.kind == "f"):
                self.loop.mirror_no_more(
                    f"weight {variable.path!r} is set where the model is called, or by a callback."
                )
                return

    def _average_statistics(self) -> None:
        differed = self.weights.average_statistics()
        if differed and self.leads and not self._has_warned:
            self._has_warned = True
            others = f", and {len(differed) - 1} more," if len(differed) > 1 else ""
            self.session.notice(
                f"Weight {differed[0]!r}{others} differed between the workers at the end of an epoch, and the mean "
                "over them was taken. That is right for a moving average. Fill a queue or a memory bank with the rows "
                "of dt.keras.global_batch, which are the same on all workers. For a count pass workers=1."
            )

    def _cut_short(self) -> None:
        """End the epoch here, after what was not to be its last step."""
        step_logs, self._ungathered = self._ungathered, None
        if step_logs is not None:
            step_logs.values.update(self.metrics.gather(step_logs))  # Keras has these logs in hand
        if self.position.batch:
            self._average_statistics()

    def validated(self, step_logs: StepLogs, *, ends: bool, last: bool) -> Any:
        """See :meth:`Worker.validated`."""
        ends_here = last or (ends and (self._control.test_batches or self._control.stop_evaluating))
        return self.metrics.gather(step_logs) if ends_here else step_logs.values

    def outcome(self, callbacks: Any) -> Outcome | None:  # noqa: ARG002
        """See :meth:`Worker.outcome`."""
        if self.loop.beside is not None:
            self.loop.beside.finish()
        self._wire_notice.training_ends()
        loop_outcome = self.loop.outcome(dict)
        outcome = None if loop_outcome is None else self.handed_over(loop_outcome)
        if self.moment.replaceable is not None:
            self.moment.replaceable.confirm()  # one that is lost before needs the others
        return outcome
