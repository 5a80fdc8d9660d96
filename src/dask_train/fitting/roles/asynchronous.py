"""Workers that train one model through parameter servers, each at its own pace."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import Any

import keras
import numpy as np

from dask_train.compat.keras.internals import pythonify_logs
from dask_train.fitting.backends import Backend, backend_of
from dask_train.fitting.roles.applying import at_every_apply
from dask_train.fitting.roles.aside import is_aside
from dask_train.fitting.roles.by_row import loss_of_rows_together
from dask_train.fitting.roles.metrics import Metrics, StepLogs
from dask_train.fitting.roles.pushing import Pushing
from dask_train.fitting.roles.rehearsal import has_own_steps
from dask_train.fitting.roles.server_agreement import ServerAgreement
from dask_train.fitting.roles.server_loop import ServerLoop
from dask_train.fitting.roles.servers import servers_of
from dask_train.fitting.roles.weights import seeds_of_rank
from dask_train.fitting.roles.worker import Worker
from dask_train.fitting.spec import VALIDATION, FitTask
from dask_train.keras_models import state
from dask_train.keras_models.global_batch import without_global_batch
from dask_train.role.dataset import DataSet
from dask_train.role.session import Session
from dask_train.trainers.common.outcome import Outcome
from dask_train.trainers.common.sync_point import LeftError

# How often the first worker, which has no rows left and waits for the others to end, looks whether it is to stop.
_LOOK_S = 0.25
# How long it waits for the last steps of others in a run that is to stop, which kills all after some seconds.
_LAST_STEPS_S = 2.0
# How long a worker whose server is gone waits to be ended, too; that message takes milliseconds.
_END_S = 20.0


def fit_asynchronously(task: FitTask, session: Session) -> Outcome | None:
    """Train; the trained model in the first worker, None in the others."""
    worker = AsynchronousWorker(task, session, backend_of(keras.backend.backend()))
    why = "workers with parameter servers take no steps together. Leave ps= out, or pass workers=1."
    try:
        with at_every_apply(worker.pushing), without_global_batch(why if worker.is_one_of_several else None, is_aside):
            return worker.fit()
    except LeftError:
        return None
    except Exception as error:
        failure = worker.pushing.failure or error  # a backend tells what is raised in mid-step in words of its own
        if isinstance(failure, EOFError | ConnectionError):
            time.sleep(_END_S)  # the loss of a server is not this worker's fault: the run ends it, and starts all again
        if failure is error:
            raise
        raise failure from None
    finally:
        worker.servers.close()


class AsynchronousWorker(Worker):
    """A worker that trains with parameter servers, at its own pace.

    Notes
    -----
    A step computes gradients with the weights that the servers gave last, and brings them where an optimizer applies
    them. Then it brings what its rows have added to metrics, so what the servers count is what they have applied.
    """

    loop: ServerLoop
    moment: ServerAgreement

    def __init__(self, task: FitTask, session: Session, backend: Backend) -> None:
        super().__init__(task, session, backend)
        seeds_of_rank(self.model, session.rank)
        self.servers = servers_of(task, self.model, session)
        self.pushing = Pushing(self.model, backend, self.servers, session.rank)
        self.metrics = Metrics(self.model)
        self._assign = backend.assigning(self.model.trainable_variables)
        self.moment = ServerAgreement(self.model, session, self.servers, self.pushing, self._finish_training)
        self.moment.is_alone = not self.is_one_of_several
        self._flags = self.moment.control
        self.loop = self.moment.loop = ServerLoop(
            task, session, self.moment, self.model, self.data.schema, self.servers
        )
        self._last: StepLogs | None = None  # the last step's

    @property
    def is_one_of_several(self) -> bool:
        """See :meth:`Worker.is_one_of_several`; also where others may join later."""
        return self.task.several_workers or self.session.size > 1

    def batches(self) -> Any:
        """See :meth:`Worker.batches`; they are dealt again where the number of workers changes."""
        return self.loop.open_batches()

    def _fit_to_the_end(self, callbacks: Any, validation: Any) -> None:
        while True:
            try:
                return super()._fit_to_the_end(callbacks, validation)
            except LeftError:  # as after a restart: it leaves, and joins again later
                if not self.loop.rejoin():
                    raise
                self._begin_step()

    def begin(self, callbacks: Any) -> None:
        """Go on where this worker was, if it takes another's place, or all with a checkpoint."""
        self.loop.keep(self.state())
        self.moment.note_rates()  # a worker that takes the first one's place has those that callbacks have set since
        self.resume(callbacks)
        if self.leads and self.is_one_of_several:
            self._notice_shares()
        self.pushing.note()
        self._begin_step()

    def _notice_shares(self) -> None:
        """Warn of losses that may differ between shares and batches; nothing is tried where workers do not agree."""
        name = loss_of_rows_together(self.model)
        what = None if name is None else f"Loss {name!r} is"
        if what is None and has_own_steps(self.model):
            what = f"Losses that model {self.model.name!r} computes in its own train_step or compute_loss are"
        if what is not None:
            self.session.notice(
                f"{what} computed of each worker's own share of a batch: with ps= each worker takes steps of its own. "
                "If rows are compared with each other, train without ps=, where all rows of a batch are seen."
            )

    def _begin_step(self) -> None:
        self.pushing.begin_step(self.position.steps + 1, looks=self.loop.begins_last)

    def stepped(self, step_logs: StepLogs, *, ends: bool) -> Any:
        """Report what the step has counted, and take the weights of the moment."""
        epoch, has_rows = self.position.epoch, self.share.weight > 0
        self.loop.count_step()
        last = self._flags.epoch_ends = self.loop.ends_epoch
        has_all = has_rows and self.pushing.end_step()
        weights, answer = self.servers.step(
            rank=self.session.rank,
            steps=self.position.steps,
            counted=(epoch, self.metrics.counted() if has_rows else None),
            statistics=True,  # a scorer, a checkpoint, or an end may come at any time
            weights=not has_all,
        )
        self._take(weights if not has_all else None, answer, ends=ends)
        self._begin_step()
        self.metrics.set(None)
        self._last = step_logs
        if not self.leads or not (last or (ends and self._flags.gather)):
            return step_logs.values
        self._show(answer["counted"])
        logs = {**step_logs.values, **self.metrics.renewed(step_logs)}
        if not last:
            self.metrics.set(None)
        return logs

    def _show(self, counted: list[np.ndarray] | None) -> None:
        """Let metrics have what servers have counted of the epoch; NaN where no worker has counted a row yet."""
        if counted is None:  # nothing counted would read as a loss of 0
            counted = [np.full_like(one, np.nan) for one in self.metrics.counted()]
        with np.errstate(invalid="ignore"):  # a metric may count in integers
            self.metrics.set(counted)

    def _take(self, weights: list[np.ndarray] | None, answer: dict[str, Any], *, ends: bool) -> None:
        """Continue from what servers have returned; callbacks that look at the model see it as they hold it."""
        if weights is not None:
            self._assign(weights)
        for (optimizer, _), scale in zip(state.held_optimizers(self.model), answer["scales"], strict=True):
            if scale is not None:
                optimizer.dynamic_scale.assign(scale)
        if answer["stop"]:
            self.model.stop_training = True
        if not self.leads and self.servers.take_others():
            self.pushing.note()
        flags = self._flags
        if (ends and flags.looks_at_batches) or (flags.epoch_ends and flags.looks_at_epochs):
            self.servers.everything()
        self.moment.ending = []

    def validated(self, step_logs: StepLogs, *, ends: bool, last: bool) -> Any:  # noqa: ARG002 - it counts for itself
        """See :meth:`Worker.validated`."""
        return step_logs.values

    def validation(self) -> Any:
        """Return the first worker's, on all of the data; None if a scorer does it, and in the others."""
        return super().validation() if self.leads else None

    def validation_data(self) -> DataSet:
        """Return all of the validation data, for this worker alone."""
        return self.session.dataset(VALIDATION).whole()

    def _finish_training(self) -> None:
        """In the first worker, before ``on_train_end``: wait for the others, and end with what the servers hold.

        What a callback has set since the last step stays; then moving averages of weights take their place, as at the
        end of Keras' own ``fit``.
        """
        self.servers.end(0, stop=bool(self.model.stop_training))
        self._wait_for_others()
        self.loop.hold_everything()
        for variable, value in self.moment.ending:
            variable.assign(value)
        if self.model.optimizer is not None:
            self.model.optimizer.finalize_variable_values(self.model.trainable_variables)

    def _wait_for_others(self) -> None:
        """Until all workers have ended.

        The run ends the wait where none of them makes progress: it knows who hangs, and who is being replaced.
        """
        counts, link = self.servers.counts, self.session._link
        ended: set[int] = set()
        stops_at = math.inf
        while time.monotonic() < stops_at:
            ended, steps = self.servers.ended(ended, _LOOK_S)
            with_rows = [each for each in range(counts.most) if counts.next_of(each, steps.get(each, 0)) is not None]
            missing = [rank for rank in with_rows if rank not in ended]
            if not missing:
                return
            if self.session.should_stop():
                stops_at = min(stops_at, time.monotonic() + _LAST_STEPS_S)
            link.note(f"past its last batch, waiting for worker {', '.join(map(str, missing))}")

    def outcome(self, callbacks: Any) -> Outcome | None:
        """Return what the servers have counted, and this worker's model as callbacks have left it."""
        if not self.leads:
            self.servers.end(self.session.rank)
        # To ask the run to stop would have it kill this worker, which has a model to hand over, after some seconds.
        is_ended_by_callback = self.model.stop_training and not self.session.should_stop()
        outcome = self.loop.outcome(dict)
        if outcome is None:
            return None
        if is_ended_by_callback:
            outcome = replace(outcome, stop_reason=f"a callback stopped training in epoch {callbacks.epoch + 1}")
        counts = self.loop.held
        self._count_all_rows(outcome, counts["counted"])
        return self.handed_over(replace(outcome, steps=self.servers.counts.num_taken(counts["steps"])))

    def _count_all_rows(self, outcome: Outcome, counted: dict[int, list[np.ndarray]]) -> None:
        """Let the history have the metrics of all rows of each epoch, as the servers have counted them."""
        history = outcome.history
        step_logs = self._last or StepLogs({name: None for name in history if not name.startswith("val_")})
        for place, epoch in enumerate(outcome.epoch):
            if epoch in counted:
                self.metrics.set(counted[epoch])
                for name, value in self.metrics.renewed(step_logs).items():
                    if name in history and place < len(history[name]):
                        history[name][place] = pythonify_logs({name: value})[name]
